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
use thalweg_storage::{Checkpoint, Gaps, LogDir, PartitionName, unnamed_segment};
use thalweg_types::limits::DECOMPRESSED_BATCH_BYTES_MAX;

use crate::args::RepairArgs;
use crate::exit::{Exit, Failure};
use crate::output::count;
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
    let dirs = settings::data_dirs(&args.settings, &config);
    let runtime = Runtime::new(RuntimeOptions {
        name: "repair".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .context("no runtime")?;
    let mut left_out = Vec::new();
    let mut examined = Vec::new();
    let image = runtime.block_on(image(&dirs.metadata.join(METADATA_DIR)));
    for path in dirs.all() {
        if fs::metadata(path.join(META_PROPERTIES)).is_err_and(|e| e.kind() == ErrorKind::NotFound)
        {
            left_out.push(path);
            continue;
        }
        let dir = runtime.block_on(LogDir::examine(path));
        examined.push(dir.map_err(anyhow::Error::from)?);
    }
    if examined.is_empty() || left_out.contains(&dirs.metadata.as_path()) {
        let text = format!(
            "{} is no data directory: it has no {META_PROPERTIES}. --config FILE or --data-dir D says where the \
             broker's is",
            dirs.metadata.display()
        );
        return Err(Failure::new(Exit::NotFound, text));
    }
    for path in &left_out {
        println!(
            "{}: not looked at: it has no {META_PROPERTIES}",
            path.display()
        );
    }
    let image = image?;
    check_names(&args.partitions, &image)?;
    runtime.block_on(run_on(args, &examined, &image, &config))
}

/// Every name must be one of a partition that there is.
fn check_names(partitions: &[String], image: &Image) -> Result<(), Failure> {
    let is_known = |text: &String| {
        text.parse::<PartitionName>().is_ok_and(|name| {
            let topic = image.topic(&name.topic);
            topic.is_some_and(|topic| topic.partitions.contains_key(&name.partition))
        })
    };
    match partitions.iter().find(|text| !is_known(text)) {
        Some(unknown) => {
            let text = format!(
                "there is no partition {unknown}: name it as TOPIC-PARTITION, such as orders-0"
            );
            Err(Failure::new(Exit::NotFound, text))
        }
        None => Ok(()),
    }
}

async fn run_on(
    args: &RepairArgs,
    dirs: &[LogDir],
    image: &Image,
    config: &BrokerConfig,
) -> Result<(), Failure> {
    let is_meant = |one: &Examination| {
        args.partitions.is_empty() || args.partitions.contains(&one.name.to_string())
    };
    let mut found = Vec::new();
    let mut others = Vec::new();
    for dir in dirs {
        let damaged = examine_all(dir, dirs, image, config).await?;
        let (here, not_named): (Vec<_>, Vec<_>) = damaged.into_iter().partition(is_meant);
        print(&here);
        others.extend(not_named.iter().map(|one| one.name.to_string()));
        found.push((dir, here));
    }
    if !others.is_empty() {
        println!(
            "not named and damaged too: {}; the next start may take them offline",
            others.join(", ")
        );
    }
    let damaged: usize = found.iter().map(|(_, here)| here.len()).sum();
    if damaged == 0 {
        let paths: Vec<_> = dirs
            .iter()
            .map(|dir| dir.path().display().to_string())
            .collect();
        println!("{}: nothing to repair", paths.join(", "));
        return Ok(());
    }
    if !args.yes {
        let text = format!(
            "{} to repair; nothing was changed. Files from a backup are better where there are some; to \
             do what is said above, add --yes",
            count(damaged as u64, "partition")
        );
        return Err(Failure::new(Exit::Failed, text));
    }
    for (dir, here) in found.iter().filter(|(_, here)| !here.is_empty()) {
        repair(dir, here).await.map_err(anyhow::Error::from)?;
    }
    println!(
        "{} repaired: the next start gives every partition a higher leader epoch, so that clients \
         notice if records that they have read are gone",
        count(damaged as u64, "partition")
    );
    Ok(())
}

/// What `thalweg repair` would do to a data directory, for `thalweg inspect`. Nothing where a broker runs on it.
/// The metadata log is in `metadata`, another directory or the same.
pub(crate) async fn preview(path: &Path, metadata: &Path) -> anyhow::Result<Vec<String>> {
    let dir = LogDir::examine(path).await?;
    let image = image(&metadata.join(METADATA_DIR)).await?;
    let found = examine_all(&dir, &[], &image, &BrokerConfig::default()).await?;
    Ok(found.iter().flat_map(lines).collect())
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
            "go on with the records that are left: the log ends at offset {end} and goes on at offset {at}, so \
             that no offset is given out twice"
        ),
        Repair::BeginAt(start) => {
            format!("go on with the records that are left: the log begins at offset {start}")
        }
        Repair::AcceptGap => {
            "go on with the records that are left; the missing offsets are skipped".to_owned()
        }
        Repair::BeginAnew { dir, at } => {
            format!("begin an empty log in {} at offset {at}", dir.display())
        }
        Repair::GiveName { to, .. } => format!(
            "call it {}; then repair again, which tells what else is wrong",
            to.display()
        ),
        Repair::FinishSwap { dir } => format!(
            "finish the compaction in {}; then repair again, which tells what else is wrong",
            dir.display()
        ),
        Repair::NameDamaged { dir, base } => format!(
            "keep it as the segment of offset {base} in {}; then repair again, which tells what of it is lost",
            dir.display()
        ),
        Repair::TopicId { dir, topic_id } => format!(
            "write topic id {topic_id} into partition.metadata of {}",
            dir.display()
        ),
    }
}

/// What is damaged in `dir`, which may be one of several.
async fn examine_all(
    dir: &LogDir,
    all: &[LogDir],
    image: &Image,
    config: &BrokerConfig,
) -> anyhow::Result<Vec<Examination>> {
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
        let is_in = |dir: &LogDir| dir.path().join(name.to_string()).exists();
        let is_here = is_in(dir);
        if !is_here && (!known.contains_key(name) || all.iter().any(is_in)) {
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
async fn image(dir: &Path) -> anyhow::Result<Image> {
    let advice = "the metadata can not be repaired: restore it from a backup";
    let mut logs = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("{}: {advice}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "log") {
            logs.push(path);
        }
    }
    logs.sort();
    let unnamed = unnamed_segment(dir).await;
    logs.extend(unnamed.with_context(|| format!("{}: {advice}", dir.display()))?);
    if logs.is_empty() {
        return Err(anyhow!("{} has no metadata log: {advice}", dir.display()));
    }
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
