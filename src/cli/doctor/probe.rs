//! `doctor --probe`: a few seconds of writing, syncing and reading, and what to expect from them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::statvfs::statvfs;
use serde::Serialize;

const PIECE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 4_096;
/// Of the free space, so much at most is written, and no more than this.
const FREE_SHARE: u64 = 10;
const FILE_BYTES_MAX: u64 = 8 << 30;

/// What the disk did; its JSON has stable names.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Probe {
    /// 10^6 bytes per second in one stream, until all of it was on the device.
    write_mb_per_second: f64,
    /// 10^6 bytes per second in one stream, after its pages were pushed out of the cache.
    read_mb_per_second: f64,
    /// fdatasync after an append of 4 KiB, in microseconds: the middle one.
    sync_p50_us: u64,
    /// The worst of a hundred.
    sync_p99_us: u64,
    /// How many syncs there were.
    syncs: usize,
}

/// A file that is removed when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody else has it; a leftover is visible by its name.
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures the disk of a folder, about so many seconds in all.
///
/// # Errors
/// The folder can not be written to, or the disk fails.
pub(super) fn measure(folder: &Path, seconds: f64) -> io::Result<Probe> {
    let scratch = Scratch(folder.join(format!(".thalweg-probe-{}", std::process::id())));
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&scratch.0)?;
    let third = Duration::from_secs_f64(seconds / 3.0);
    let space = statvfs(folder)?;
    let free = space.blocks_available() * space.fragment_size();
    let most = (free / FREE_SHARE).min(FILE_BYTES_MAX);
    let (written, write_mb_per_second) = write(&mut file, third, most)?;
    let read_mb_per_second = read(&mut file, third, written)?;
    let mut syncs = sync(&mut file, third)?;
    syncs.sort_unstable();
    let at = |percent: usize| syncs.get(syncs.len() * percent / 100).copied().unwrap_or(0);
    Ok(Probe {
        write_mb_per_second,
        read_mb_per_second,
        sync_p50_us: at(50),
        sync_p99_us: at(99),
        syncs: syncs.len(),
    })
}

fn rate(bytes: u64, begin: Instant) -> f64 {
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

/// Bytes, and how fast they came onto the device.
fn write(file: &mut File, time: Duration, most: u64) -> io::Result<(u64, f64)> {
    // Zeros would be too easy for disks that compress.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let piece: Vec<u8> = (0..PIECE_BYTES)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let begin = Instant::now();
    let mut written = 0;
    // One at least, however late it is already.
    while (written == 0 || begin.elapsed() < time) && written + PIECE_BYTES as u64 <= most {
        file.write_all(&piece)?;
        written += PIECE_BYTES as u64;
        // Else the page cache takes it all, and the end takes long.
        if written % (64 * PIECE_BYTES as u64) == 0 {
            file.sync_data()?;
        }
    }
    file.sync_data()?;
    Ok((written, rate(written, begin)))
}

fn read(file: &mut File, time: Duration, written: u64) -> io::Result<f64> {
    posix_fadvise(&*file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    file.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE_BYTES];
    let begin = Instant::now();
    let mut got = 0;
    while (got == 0 || begin.elapsed() < time) && got < written {
        let n = file.read(&mut piece)? as u64;
        if n == 0 {
            break;
        }
        got += n;
    }
    Ok(rate(got, begin))
}

/// Microseconds of each fdatasync.
fn sync(file: &mut File, time: Duration) -> io::Result<Vec<u64>> {
    file.seek(SeekFrom::End(0))?;
    let begin = Instant::now();
    let mut took = Vec::new();
    while took.is_empty() || begin.elapsed() < time {
        file.write_all(&[7; SMALL_BYTES])?;
        let one = Instant::now();
        file.sync_data()?;
        took.push(u64::try_from(one.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(took)
}

impl Probe {
    /// Lines for people: what was measured and what to expect.
    pub(super) fn shown(&self) -> Vec<String> {
        let one_by_one = 1e6 / self.sync_p50_us.max(1) as f64;
        vec![
            format!(
                "write    {:.0} MB/s onto the device: what producers can send for long; bursts go as fast as memory until \
                 vm.dirty_ratio is reached",
                self.write_mb_per_second
            ),
            format!(
                "read     {:.0} MB/s in one stream: what consumers that catch up share",
                self.read_mb_per_second
            ),
            format!(
                "sync     {} us in the middle, {} us the worst of a hundred ({} syncs): with flush.messages=1 a producer that \
                 waits for each answer gets about {one_by_one:.0} per second and partition, and an answer takes at least so long",
                self.sync_p50_us, self.sync_p99_us, self.syncs
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::measure;

    #[test]
    fn a_short_probe_measures_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let probe = measure(folder.path(), 0.09).unwrap();
        assert!(probe.write_mb_per_second > 0.0 && probe.read_mb_per_second > 0.0);
        assert!(probe.syncs > 0 && probe.sync_p50_us <= probe.sync_p99_us);
        assert_eq!(probe.shown().len(), 3);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(measure(&folder.path().join("none"), 0.1).is_err());
    }
}
