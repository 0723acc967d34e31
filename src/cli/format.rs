//! `thalweg format`: gives an empty data directory its identity.

use anyhow::Context;
use thalweg_reactor::{EngineChoice, Runtime, RuntimeOptions};
use thalweg_storage::{FormatPolicy, Formatted, LogDirError, MetaProperties, OpenPolicy};
use thalweg_types::ClusterId;

use crate::args::FormatArgs;
use crate::exit::{Exit, Failure};
use crate::serve::draw_id;
use crate::settings;

/// Formats the directory that the settings name.
///
/// # Errors
/// The settings are wrong, or the directory holds something already.
pub(crate) fn run(args: FormatArgs) -> Result<(), Failure> {
    let config = settings::load(&args.settings, None)?.config;
    let dir = settings::data_dir(&args.settings, &config);
    let configured = config.cluster_id().map(str::to_owned);
    let wanted = args.cluster_id.or(configured).map(ClusterId);
    let policy = OpenPolicy {
        node_id: config.node_id(),
        format: FormatPolicy::WhenEmpty {
            cluster_id: wanted
                .clone()
                .unwrap_or_else(|| ClusterId(draw_id().to_string())),
            directory_id: draw_id(),
        },
        cluster_id: None,
    };
    let runtime = Runtime::new(RuntimeOptions {
        name: "format".to_owned(),
        engine: EngineChoice::Plain,
        ..RuntimeOptions::default()
    })
    .context("no runtime")?;
    let outcome = runtime.block_on(thalweg_storage::format_log_dir(&dir, &policy));
    let shown = dir.display();
    match outcome.map_err(refusal)? {
        Formatted::Now(meta) => {
            println!("formatted {shown}: {}", identity(&meta));
            Ok(())
        }
        Formatted::Before(meta) => {
            let found = format!("{shown} is formatted already: {}", identity(&meta));
            let other = wanted.filter(|wanted| *wanted != meta.cluster_id);
            match (other, args.ignore_formatted) {
                (Some(wanted), true) => {
                    let text = format!("{found}; it does not belong to cluster {wanted}");
                    Err(Failure::new(Exit::Failed, text))
                }
                (None, true) => {
                    println!("{found}");
                    Ok(())
                }
                (_, false) => {
                    let text = format!(
                        "{found}; nothing was changed. With --ignore-formatted that is no error; to \
                         begin anew, empty the directory yourself"
                    );
                    Err(Failure::new(Exit::AlreadyExists, text))
                }
            }
        }
    }
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
