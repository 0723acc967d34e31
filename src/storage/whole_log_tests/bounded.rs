//! What a start reads is bounded by what lies above the recovery point, or above the mark, however long the
//! log is.

use thalweg_types::Offset;

use super::{TestLog, copy_dir, edit, file, log_file, on_plain_engine, small_segments};
use crate::{LogOptions, Opening, Recovery, RecoveryReport};

/// Batches above the recovery point.
const TAIL: usize = 20;

/// One segment, whatever is written.
fn one_segment() -> LogOptions {
    LogOptions {
        segment_bytes: 1 << 30,
        ..small_segments()
    }
}

/// The reports of starts after a loss of power and after a kill, of a log of so many batches on the disk
/// and [`TAIL`] above.
async fn starts(
    dir: &std::path::Path,
    options: &LogOptions,
    batches: usize,
) -> [RecoveryReport; 2] {
    let (source, copy) = (dir.join(format!("source-{batches}")), dir.join("copy"));
    std::fs::create_dir(&source).expect("a directory");
    let test = TestLog::create(&source, options.clone()).await;
    test.fill(batches).await;
    test.log.flush().await.expect("flushed");
    let recovery_point = test.log.recovery_point();
    assert_eq!(recovery_point, test.log.written_end());
    let saved = test.log.save_way(recovery_point, vec![7]).await;
    saved.expect("saved");
    test.fill(TAIL).await;
    let end = test.log.written_end();
    let all = test.read_all().await;
    test.kill().await;
    let mut reports = Vec::new();
    for written in [None, Some(recovery_point)] {
        copy_dir(&source, &copy);
        let opening = Opening {
            written,
            ..Opening::from(Recovery::AfterCrash { recovery_point })
        };
        let opened = TestLog::open(&copy, options.clone(), opening).await;
        let (test, report) = opened.expect("opened");
        assert_eq!(test.log.written_end(), end);
        assert_eq!(test.read_all().await, all);
        reports.push(report);
    }
    reports.try_into().expect("two")
}

#[test]
fn st_5_a_start_checks_as_much_of_a_long_log_as_of_a_short_one() {
    on_plain_engine(|dir| async move {
        for (nth, options) in [one_segment(), small_segments()].iter().enumerate() {
            let dir = dir.join(format!("{nth}"));
            std::fs::create_dir(&dir).expect("a directory");
            let segment_bytes = u64::from(options.segment_bytes);
            for batches in [100, 1_000] {
                let reports = starts(&dir, options, batches).await;
                for report in &reports {
                    // A tail, an interval of the index, and batches at both ends of each.
                    let batch = 120;
                    let most = (TAIL as u64 + 4) * batch + u64::from(options.index_interval_bytes);
                    // Where segments are small, that of the recovery point begins just below it.
                    let most = most + segment_bytes.min(2_000);
                    assert!(
                        report.bytes_scanned <= most && report.bytes_scanned > 0,
                        "{batches} batches: {} bytes of {most}: {report:?}",
                        report.bytes_scanned
                    );
                }
            }
        }
    });
}

/// The files of indexes need not have come to the disk: then the whole segment is checked, and nothing is
/// believed that is not so.
#[test]
fn st_9_an_index_that_a_loss_of_power_damaged_leads_nowhere() {
    on_plain_engine(|dir| async move {
        let [whole, _] = starts(&dir, &one_segment(), 100).await;
        let source = dir.join("source-100");
        let recovery_point = Offset(300);
        let size = std::fs::metadata(log_file(&source, 0))
            .expect("a log")
            .len();
        assert!(whole.bytes_scanned < size / 2);
        let opening = Opening::from(Recovery::AfterCrash { recovery_point });
        let copy = dir.join("copy");
        for (nth, harm) in [
            |bytes: &mut Vec<u8>| bytes.clear(),
            |bytes: &mut Vec<u8>| bytes.fill(0),
            |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 3),
            |bytes: &mut Vec<u8>| {
                // Into the middle of a batch.
                for entry in bytes.chunks_mut(8) {
                    entry[7] = entry[7].wrapping_add(1);
                }
            },
        ]
        .into_iter()
        .enumerate()
        {
            copy_dir(&source, &copy);
            edit(&file(&copy, 0, "index"), harm);
            let opened = TestLog::open(&copy, one_segment(), opening).await;
            let (test, report) = opened.expect("opened");
            assert!(report.bytes_scanned >= size, "harm {nth}: {report:?}");
            assert_eq!(test.log.written_end(), Offset(3 * (100 + TAIL as i64)));
        }
        // What is damaged above the point is a torn tail, and below it is found where it is looked at.
        copy_dir(&source, &copy);
        edit(&log_file(&copy, 0), |bytes| bytes.truncate(bytes.len() - 1));
        let opened = TestLog::open(&copy, one_segment(), opening).await;
        let (test, report) = opened.expect("opened");
        assert!(report.cut.is_some() && report.bytes_scanned < size / 2);
        assert_eq!(test.log.written_end(), Offset(3 * (99 + TAIL as i64)));
        copy_dir(&source, &copy);
        edit(&log_file(&copy, 0), |bytes| bytes.truncate(bytes.len() / 2));
        let refused = TestLog::open(&copy, one_segment(), opening).await;
        assert!(refused.map(|_| ()).is_err_and(|error| error.is_damage()));
    });
}
