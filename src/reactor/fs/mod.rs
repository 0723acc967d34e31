//! Files: handles, reads and writes, flushes, names.
//!
//! Reads and writes go to the engine of the calling thread's runtime. Everything that may block on
//! metadata or on a flush goes to worker threads: never call `std::fs` from a task.
//!
//! Errors are `io::Error`s of the kernel's kind whose text names the operation, the path and the
//! offset; [`os_error`] gives the errno.

mod data;
mod file;
mod lock;
mod namespace;
mod syncer;
mod under_way;

pub use data::{
    append_cached, cached_pages, forget_cached, is_resident, is_surely_resident, no_read_ahead,
    read_at, read_cached, sync_data, sync_in_background, write_at,
};
pub use file::{File, FsError, OpenMode, is_of_flush, os_error};
pub use lock::DirLock;
pub use namespace::{
    DirEntry, FileMeta, FileSystem, Space, allocate, cache_lifetime, create_dir, create_dir_all,
    create_dir_with, drop_cached, exists, extend_file, len, lengths, list_dir, metadata, open,
    read_file, read_files, remove_dir_all, rename, replace_file, set_modified, space, sync_all,
    sync_dir, truncate, unlink, write_file_atomically,
};
pub use syncer::{Syncer, Unflushed};
pub use under_way::let_writes_end;

pub use crate::workers::give_threads;
