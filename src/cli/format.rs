//! `thalweg format`: gives empty data directories their identity.

use std::path::Path;

use anyhow::Context;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::{FormatPolicy, Formatted, LogDirError, MetaProperties, OpenPolicy};
use thalweg_types::ClusterId;

use crate::args::FormatArgs;
use crate::exit::{Exit, Failure};
use crate::serve::draw_id;
use crate::settings;

/// Formats the directories that the settings name, each that is not.
///
/// # Errors
/// The settings are wrong, or a directory holds something already.
pub(crate) fn run(args: FormatArgs) -> Result<(), Failure> {
    let config = settings::load(&args.settings, None)?.config;
    let dirs = settings::data_dirs(&args.settings, &config);
    let runtime = Runtime::new(RuntimeOptions {
        name: "format".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .context("no runtime")?;
    let configured = config.cluster_id().map(str::to_owned);
    let wanted = args.cluster_id.or(configured).map(ClusterId);
    let all = dirs.all();
    // A directory that is added to others joins their cluster.
    let joined = match &wanted {
        Some(_) => None,
        None => runtime.block_on(known_cluster(&all)),
    };
    let cluster_id = wanted.or(joined);
    let cluster_id = cluster_id.unwrap_or_else(|| ClusterId(draw_id().to_string()));
    if args.ignore_formatted || all.len() > 1 {
        runtime.block_on(check_cluster(&all, &cluster_id))?;
    }
    let mut formatted = 0;
    let mut before = Vec::new();
    for dir in &all {
        let policy = OpenPolicy {
            node_id: config.node_id(),
            format: FormatPolicy::WhenEmpty {
                cluster_id: cluster_id.clone(),
                directory_id: draw_id(),
            },
            cluster_id: None,
        };
        let outcome = runtime.block_on(thalweg_storage::format_log_dir(dir, &policy));
        let shown = dir.display();
        match outcome.map_err(refusal)? {
            Formatted::Now(meta) => {
                println!("formatted {shown}: {}", identity(&meta));
                formatted += 1;
            }
            Formatted::Before(meta) => {
                before.push(format!("{shown} is formatted already: {}", identity(&meta)));
            }
        }
    }
    let is_no_error = args.ignore_formatted || formatted > 0;
    if before.is_empty() || is_no_error {
        before.iter().for_each(|found| println!("{found}"));
        return Ok(());
    }
    let text = format!(
        "{}; nothing was changed. With --ignore-formatted that is no error; to begin anew, empty the \
         directory yourself",
        before.join("; ")
    );
    Err(Failure::new(Exit::AlreadyExists, text))
}

/// Before anything is changed: those that have a cluster have this one.
async fn check_cluster(dirs: &[&Path], cluster_id: &ClusterId) -> Result<(), Failure> {
    for dir in dirs {
        match MetaProperties::of(dir).await {
            Ok(meta) if meta.cluster_id != *cluster_id => {
                let text = format!(
                    "{} is formatted already: {}; it does not belong to cluster {cluster_id}",
                    dir.display(),
                    identity(&meta)
                );
                return Err(Failure::new(Exit::Failed, text));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// The cluster of the first directory that has one.
async fn known_cluster(dirs: &[&Path]) -> Option<ClusterId> {
    for dir in dirs {
        if let Ok(meta) = MetaProperties::of(dir).await {
            return Some(meta.cluster_id);
        }
    }
    None
}

fn identity(meta: &MetaProperties) -> String {
    let directory = match meta.directory_id {
        Some(id) => format!(", directory {id}"),
        None => String::new(),
    };
    format!(
        "cluster {}, node {}{directory}",
        meta.cluster_id, meta.node_id
    )
}

fn refusal(error: LogDirError) -> Failure {
    Failure::from(anyhow::Error::from(error))
}
