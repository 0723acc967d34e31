//! `thalweg repair`: says what is wrong in the data directory of a stopped broker and, when it is told to,
//! makes of each damaged log one that starts.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, anyhow};
use thalweg_config::{BrokerConfig, TopicConfig};
use thalweg_metadata::{Image, Record as MetadataRecord};
use thalweg_protocol::records::records_of;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::repair::{Examination, Expected, Repair, examine, repair};
use thalweg_storage::{Checkpoint, Gaps, LogDir, PartitionName};
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;

use crate::args::RepairArgs;
use crate::exit::{Exit, Failure};
use crate::settings;

/// Directory of the metadata log, as Kafka names it.
const METADATA_DIR: &str = "__cluster_metadata-0";

/// What every formatted data directory has.
pub(crate) const META_PROPERTIES: &str = "meta.properties";

/// Runs the command.
///
/// # Errors
/// The settings are wrong, a broker runs on the directory, its metadata can not be read, or something is to be
/// repaired and `--yes` was not given.
pub(crate) fn run(args: &RepairArgs) -> Result<(), Failure> {
    let config = settings::load(&args.settings, None)?.config;
    let path = settings::data_dir(&args.settings, &config);
    if fs::metadata(path.join(META_PROPERTIES)).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        let text = format!(
            "{} is no data directory: it has no {META_PROPERTIES}. --config FILE or --data-dir D says where the \
             broker's is",
            path.display()
        );
        return Err(Failure::new(Exit::NotFound, text));
    }
    let runtime = Runtime::new(RuntimeOptions {
        name: "repair".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .context("no runtime")?;
    runtime.block_on(async {
        let dir = LogDir::examine(&path).await.map_err(anyhow::Error::from)?;
        let found = examine_all(&dir, &config).await?;
        let is_meant = |one: &Examination| {
            args.partitions.is_empty() || args.partitions.contains(&one.name.to_string())
        };
        let (found, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_meant);
        print(&found);
        if !others.is_empty() {
            let names: Vec<_> = others.iter().map(|one| one.name.to_string()).collect();
            println!(
                "not named and damaged too: {}; the next start may take them offline",
                names.join(", ")
            );
        }
        if found.is_empty() {
            println!("{}: nothing to repair", path.display());
            return Ok(());
        }
        if !args.yes {
            let text = format!(
                "{} to repair; nothing was changed. Files from a backup are better where there are some; to \
                 do what is said above, add --yes",
                count(found.len())
            );
            return Err(Failure::new(Exit::Failed, text));
        }
        repair(&dir, &found).await.map_err(anyhow::Error::from)?;
        println!(
            "{} repaired: the next start gives every partition a higher leader epoch, so that clients see \
             what they may have read and is gone",
            count(found.len())
        );
        Ok(())
    })
}

/// What `thalweg repair` would do to a data directory, for `thalweg inspect`. Nothing where a broker runs on it.
pub(crate) async fn preview(path: &Path) -> anyhow::Result<Vec<String>> {
    let dir = LogDir::examine(path).await?;
    let found = examine_all(&dir, &BrokerConfig::default()).await?;
    Ok(found.iter().flat_map(lines).collect())
}

fn count(partitions: usize) -> String {
    match partitions {
        1 => "1 partition".to_owned(),
        n => format!("{n} partitions"),
    }
}

fn print(found: &[Examination]) {
    for line in found.iter().flat_map(lines) {
        println!("{line}");
    }
}

fn lines(one: &Examination) -> impl Iterator<Item = String> + '_ {
    one.findings.iter().flat_map(|finding| {
        [
            format!("{}: {}", one.name, finding.damage),
            format!("  repair: {}", said(&finding.repair)),
        ]
    })
}

fn said(repair: &Repair) -> String {
    match repair {
        Repair::TakeOut { path, bytes } => format!(
            "take bytes {} to {} out of {} and keep what is around them; the file as it is gets the ending \
             .cut-away",
            bytes.start,
            bytes.end.saturating_sub(1),
            path.display()
        ),
        Repair::GoOnAt { end, at, .. } => format!(
            "take what is there as the whole: the log ends at offset {end} and goes on at offset {at}, so \
             that no offset is given out twice"
        ),
        Repair::BeginAt(start) => {
            format!("take what is there as the whole: the log begins at offset {start}")
        }
        Repair::AcceptGap => "take what is there as the whole: the offsets stay missing".to_owned(),
        Repair::BeginAnew { dir, at } => {
            format!("begin an empty log in {} at offset {at}", dir.display())
        }
        Repair::TopicId { dir, topic_id } => format!(
            "write topic id {topic_id} into partition.metadata of {}",
            dir.display()
        ),
    }
}

async fn examine_all(dir: &LogDir, config: &BrokerConfig) -> anyhow::Result<Vec<Examination>> {
    let image = image(&dir.path().join(METADATA_DIR))?;
    let mut names = BTreeSet::new();
    for topic in image.topics() {
        for index in topic.partitions.keys() {
            names.insert(PartitionName::new(topic.name.to_string(), index.0));
        }
    }
    let known = dir.loaded(Checkpoint::RecoveryPoint);
    let mut found = Vec::new();
    for name in &names {
        let Some(topic) = image.topic(&name.topic) else {
            continue;
        };
        let is_new = !known.contains_key(name) && !dir.path().join(name.to_string()).exists();
        if is_new {
            continue;
        }
        let overrides = image.topic_overrides(&name.topic);
        let (topic_config, _) = TopicConfig::resolve(config, overrides);
        let expected = Expected {
            topic_id: topic.id,
            gaps: match topic_config.cleanup_policy().compact {
                true => Gaps::MayBe,
                false => Gaps::Never,
            },
        };
        let examined = examine(dir, name, expected).await;
        found.extend(examined.with_context(|| format!("looking at {name}"))?);
    }
    Ok(found)
}

/// The metadata, read without changing it.
fn image(dir: &Path) -> anyhow::Result<Image> {
    let advice = "the metadata can not be repaired: restore it from a backup";
    let mut logs = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("{}: {advice}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "log") {
            logs.push(path);
        }
    }
    if logs.is_empty() {
        return Err(anyhow!("{} has no metadata log: {advice}", dir.display()));
    }
    logs.sort();
    let mut records = Vec::new();
    for path in logs {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        read_records(&bytes, &mut records)
            .with_context(|| format!("{}: {advice}", path.display()))?;
    }
    let (image, _) = Image::default()
        .apply(&records)
        .map_err(|error| anyhow!("{}: {error}: {advice}", dir.display()))?;
    Ok(image)
}

fn read_records(mut rest: &[u8], records: &mut Vec<MetadataRecord>) -> anyhow::Result<()> {
    // A torn or zeroed end holds nothing that anybody was told of.
    while rest.get(16).is_some_and(|magic| *magic != 0) {
        let batch = records_of(rest, DECOMPRESSED_BATCH_BYTES_MAX)?;
        let bytes = batch.header().total_bytes();
        if !batch.header().is_control() {
            for record in batch.iter() {
                let value = record?.value.unwrap_or_default();
                records.push(MetadataRecord::decode(value)?);
            }
        }
        rest = rest.get(bytes..).unwrap_or_default();
    }
    Ok(())
}
