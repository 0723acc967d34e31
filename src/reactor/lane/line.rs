//! Who waits for the lane, and what there is for them: threads, buffers, handles. Plain data under one lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::{Handle, Way};
use super::memory::Memory;
use super::{LaneOptions, Stride};
use crate::fs::File;
use crate::sync::oneshot;

/// A stride that somebody waits for.
pub(super) struct Request {
    pub(super) ticket: u64,
    pub(super) reader: u64,
    pub(super) disk: u64,
    pub(super) file: File,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) answer: oneshot::Sender<std::io::Result<Stride>>,
}

/// A request whose turn has come, with the memory to read it into.
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) memory: Memory,
}

#[derive(Default)]
pub(super) struct Line {
    /// In the order of asking.
    waiting: VecDeque<Request>,
    /// Reads under way, by disk.
    under_way: HashMap<u64, usize>,
    free: Vec<Memory>,
    pub(super) buffers_out: usize,
    pub(super) handles: Handles,
    pub(super) threads: usize,
    pub(super) idle: usize,
}

impl Line {
    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Takes a request back that was not begun.
    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<Request> {
        let at = self.waiting.iter().position(|r| r.ticket == ticket)?;
        self.waiting.remove(at)
    }

    fn has_buffer(&self, options: &LaneOptions) -> bool {
        (self.buffers_out + 1) * options.stride_bytes <= options.memory_bytes
    }

    fn may_begin(&self, request: &Request, options: &LaneOptions) -> bool {
        let of_disk = self.under_way.get(&request.disk);
        of_disk.is_none_or(|count| *count < options.per_disk)
    }

    /// True while a request waits for nothing but a buffer.
    pub(super) fn waits_for_buffer(&self, options: &LaneOptions) -> bool {
        !self.has_buffer(options) && self.waiting.iter().any(|r| self.may_begin(r, options))
    }

    /// True when more could be done at once than there are threads for.
    pub(super) fn wants_thread(&self, options: &LaneOptions) -> bool {
        self.threads < options.threads_max && self.wanted(options) > self.threads
    }

    /// True when a thread that has nothing to do would find something.
    pub(super) fn wants_wake(&self, options: &LaneOptions) -> bool {
        let is_ready = || self.waiting.iter().any(|r| self.may_begin(r, options));
        self.idle > 0 && self.has_buffer(options) && is_ready()
    }

    /// Reads that the disks take at once, of those that are under way and those that are waited for.
    fn wanted(&self, options: &LaneOptions) -> usize {
        let under_way = self.under_way.iter();
        let mut by_disk: Vec<_> = under_way.map(|(disk, count)| (*disk, *count)).collect();
        for request in &self.waiting {
            match by_disk.iter_mut().find(|(disk, _)| *disk == request.disk) {
                Some((_, count)) => *count += 1,
                None => by_disk.push((request.disk, 1)),
            }
        }
        let taken = by_disk
            .iter()
            .map(|(_, count)| options.per_disk.min(*count));
        taken.sum()
    }

    /// The first request that can be begun now.
    pub(super) fn take(&mut self, options: &LaneOptions) -> Option<Work> {
        if !self.has_buffer(options) {
            return None;
        }
        let may_begin = |request: &Request| self.may_begin(request, options);
        let at = self.waiting.iter().position(may_begin)?;
        let request = self.waiting.remove(at)?;
        *self.under_way.entry(request.disk).or_insert(0) += 1;
        self.buffers_out += 1;
        let memory = self.free.pop();
        Some(Work {
            request,
            memory: memory.unwrap_or_else(|| Memory::around(options.stride_bytes)),
        })
    }

    #[cfg(test)]
    pub(super) fn free_buffers(&self) -> usize {
        self.free.len()
    }

    pub(super) fn read_ended(&mut self, disk: u64) {
        if let Some(count) = self.under_way.get_mut(&disk) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&disk);
            }
        }
    }

    /// A buffer is needed no more. Without a thread nobody will ask for it soon.
    pub(super) fn give_back(&mut self, memory: Memory) {
        self.buffers_out -= 1;
        if self.threads > 0 {
            self.free.push(memory);
        }
    }

    /// Takes out what nobody has needed for `idle`; the memory, when no thread is left.
    pub(super) fn expire(&mut self, idle: Duration) -> (Vec<Memory>, Vec<Arc<Handle>>) {
        let free = match self.threads {
            0 => std::mem::take(&mut self.free),
            _ => Vec::new(),
        };
        (free, self.handles.unused_for(idle))
    }
}

/// The handle of one reader on one file.
struct Kept {
    reader: u64,
    file: u64,
    way: Way,
    handle: Arc<Handle>,
    used: Instant,
}

/// Open handles, the one used last at the end.
#[derive(Default)]
pub(super) struct Handles(VecDeque<Kept>);

impl Handles {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&mut self, of: &Request, way: Way) -> Option<Arc<Handle>> {
        let wanted = (of.reader, of.file.id(), way);
        let is_it = |kept: &Kept| (kept.reader, kept.file, kept.way) == wanted;
        let at = self.0.iter().position(is_it)?;
        let mut kept = self.0.remove(at)?;
        kept.used = Instant::now();
        let handle = Arc::clone(&kept.handle);
        self.0.push_back(kept);
        Some(handle)
    }

    /// Keeps one more; gives those that have to go for it.
    pub(super) fn add(
        &mut self,
        of: &Request,
        way: Way,
        handle: Arc<Handle>,
        most: usize,
    ) -> Vec<Arc<Handle>> {
        self.0.push_back(Kept {
            reader: of.reader,
            file: of.file.id(),
            way,
            handle,
            used: Instant::now(),
        });
        let excess = self.0.len().saturating_sub(most);
        self.0.drain(..excess).map(|kept| kept.handle).collect()
    }

    /// The reader is gone.
    pub(super) fn forget(&mut self, reader: u64) -> Vec<Arc<Handle>> {
        self.remove_where(|kept| kept.reader == reader)
    }

    /// Takes out what nobody has used for so long.
    pub(super) fn unused_for(&mut self, idle: Duration) -> Vec<Arc<Handle>> {
        let now = Instant::now();
        let is_fresh = |kept: &Kept| now.saturating_duration_since(kept.used) < idle;
        let stale = self.0.iter().position(is_fresh).unwrap_or(self.0.len());
        self.0.drain(..stale).map(|kept| kept.handle).collect()
    }

    fn remove_where(&mut self, goes: impl Fn(&Kept) -> bool) -> Vec<Arc<Handle>> {
        let (gone, kept) = self.0.drain(..).partition::<VecDeque<_>, _>(&goes);
        self.0 = kept;
        gone.into_iter().map(|kept| kept.handle).collect()
    }
}
