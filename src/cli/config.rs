//! `thalweg config`: settings of topics, brokers and groups.

use serde::Serialize;
use thalweg_client::{Change, Cluster, ConfigChange, ConfigOwner, Setting, config_source_name};

use crate::args::{
    ConfigAlterArgs, ConfigCommand, ConfigDescribeArgs, ConfigOwnerArgs, ConfigOwnerKind,
};
use crate::exit::{Exit, Failure, connect};
use crate::output::{self, Align, printable};

/// Kafka's number of a value that nobody set.
const SOURCE_DEFAULT: i8 = 5;

/// Runs one subcommand of `thalweg config`.
pub(crate) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Describe(args) => describe(&args),
        ConfigCommand::Alter(args) => alter(&args),
    }
}

fn owner(args: &ConfigOwnerArgs) -> Result<ConfigOwner, Failure> {
    let broker_id = |id: &str| {
        let text = "a broker is named by its id, a number";
        id.parse().map_err(|_| Failure::new(Exit::Usage, text))
    };
    match (args.kind, &args.name) {
        (ConfigOwnerKind::Topic, Some(name)) => Ok(ConfigOwner::Topic(name.clone())),
        (ConfigOwnerKind::Group, Some(name)) => Ok(ConfigOwner::Group(name.clone())),
        (ConfigOwnerKind::Broker, Some(id)) => Ok(ConfigOwner::Broker(broker_id(id)?)),
        (ConfigOwnerKind::BrokerLogger, Some(id)) => Ok(ConfigOwner::BrokerLogger(broker_id(id)?)),
        (ConfigOwnerKind::Broker | ConfigOwnerKind::BrokerDefault, None) => {
            Ok(ConfigOwner::AllBrokers)
        }
        (ConfigOwnerKind::BrokerDefault, Some(_)) => Err(Failure::new(
            Exit::Usage,
            "broker-default is all brokers: leave out the name",
        )),
        (ConfigOwnerKind::Topic | ConfigOwnerKind::Group, None) => {
            Err(Failure::new(Exit::Usage, "name the topic or group"))
        }
        (ConfigOwnerKind::BrokerLogger, None) => {
            Err(Failure::new(Exit::Usage, "name the broker by its id"))
        }
    }
}

#[derive(Serialize)]
struct SynonymLine {
    name: String,
    value: Option<String>,
    source: &'static str,
}

#[derive(Serialize)]
struct SettingLine {
    name: String,
    value: Option<String>,
    source: &'static str,
    read_only: bool,
    sensitive: bool,
    r#type: Option<&'static str>,
    documentation: Option<String>,
    synonyms: Vec<SynonymLine>,
}

impl From<Setting> for SettingLine {
    fn from(setting: Setting) -> SettingLine {
        let synonym = |(name, value, source): (String, Option<String>, i8)| SynonymLine {
            name,
            value,
            source: config_source_name(source),
        };
        SettingLine {
            name: setting.name,
            value: setting.value,
            source: config_source_name(setting.source),
            read_only: setting.is_read_only,
            sensitive: setting.is_sensitive,
            r#type: setting.value_type,
            documentation: setting.documentation,
            synonyms: setting.synonyms.into_iter().map(synonym).collect(),
        }
    }
}

#[derive(Serialize)]
struct GroupLine {
    name: String,
    settings: Vec<SettingLine>,
}

fn describe(args: &ConfigDescribeArgs) -> Result<(), Failure> {
    if args.owner.kind == ConfigOwnerKind::Group && args.owner.name.is_none() {
        return describe_groups(args);
    }
    let owner = owner(&args.owner)?;
    let mut cluster = connect(&args.broker)?;
    let lines = shown(&mut cluster, &owner, args)?;
    match args.json {
        true => Ok(output::json(&lines)?),
        false => print(&lines),
    }
}

/// All groups that have settings, as Kafka's own tool does.
fn describe_groups(args: &ConfigDescribeArgs) -> Result<(), Failure> {
    let mut cluster = connect(&args.broker)?;
    let mut groups = Vec::new();
    for name in cluster.groups_with_settings()? {
        let settings = shown(&mut cluster, &ConfigOwner::Group(name.clone()), args)?;
        groups.push(GroupLine { name, settings });
    }
    if args.json {
        return Ok(output::json(&groups)?);
    }
    for (at, group) in groups.iter().enumerate() {
        if at > 0 {
            output::line("")?;
        }
        output::line(&format!("Group {}", printable(&group.name)))?;
        print(&group.settings)?;
    }
    Ok(())
}

fn shown(
    cluster: &mut Cluster,
    owner: &ConfigOwner,
    args: &ConfigDescribeArgs,
) -> Result<Vec<SettingLine>, Failure> {
    let settings = cluster.describe_configs(owner)?.into_iter();
    let shown = settings.filter(|setting| args.all || setting.source != SOURCE_DEFAULT);
    Ok(shown.map(SettingLine::from).collect())
}

fn print(lines: &[SettingLine]) -> Result<(), Failure> {
    let headings = [
        ("NAME", Align::Left),
        ("VALUE", Align::Left),
        ("FROM", Align::Left),
        ("CHANGES", Align::Left),
    ];
    let row = |line: &SettingLine| {
        let changes = if line.read_only { "at start" } else { "live" };
        vec![
            line.name.clone(),
            line.value.clone().unwrap_or_else(|| "-".to_owned()),
            line.source.to_owned(),
            changes.to_owned(),
        ]
    };
    Ok(output::table(
        &headings,
        &lines.iter().map(row).collect::<Vec<_>>(),
    )?)
}

#[derive(Serialize)]
struct AlteredLine {
    changed: bool,
}

fn alter(args: &ConfigAlterArgs) -> Result<(), Failure> {
    let owner = owner(&args.owner)?;
    let pair = |p: &crate::args::Property| (p.key.clone(), p.value.clone());
    let set = args
        .set
        .iter()
        .map(pair)
        .map(|(k, v)| ConfigChange::Set(k, v));
    let delete = args.delete.iter().cloned().map(ConfigChange::Delete);
    let append = args
        .append
        .iter()
        .map(pair)
        .map(|(k, v)| ConfigChange::Append(k, v));
    let subtract = args
        .subtract
        .iter()
        .map(pair)
        .map(|(k, v)| ConfigChange::Subtract(k, v));
    let changes: Vec<ConfigChange> = set.chain(delete).chain(append).chain(subtract).collect();
    if changes.is_empty() {
        let text = "nothing to change: give --set, --delete, --append or --subtract";
        return Err(Failure::new(Exit::Usage, text));
    }
    let change = match args.validate_only {
        true => Change::Check,
        false => Change::Make,
    };
    let mut cluster = connect(&args.broker)?;
    check_set(&mut cluster, &owner, &args.delete)?;
    cluster.alter_configs(&owner, &changes, change)?;
    let changed = change == Change::Make;
    if args.json {
        return Ok(output::json(&AlteredLine { changed })?);
    }
    let text = match changed {
        true => "changed",
        false => "would be changed",
    };
    Ok(output::line(text)?)
}

/// Refuses to delete what is not set, as Kafka's own tool does: brokers take it without a word, and a slip
/// in a name would look like success.
pub(crate) fn check_set(
    cluster: &mut Cluster,
    owner: &ConfigOwner,
    deleted: &[String],
) -> Result<(), Failure> {
    if deleted.is_empty() {
        return Ok(());
    }
    let settings = cluster.describe_configs(owner)?;
    let is_set = |key: &String| {
        let own = |setting: &Setting| {
            let mut synonyms = setting.synonyms.iter();
            setting.source == owner.own_source()
                || synonyms.any(|(_, _, source)| *source == owner.own_source())
        };
        settings
            .iter()
            .any(|setting| setting.name == *key && own(setting))
    };
    match deleted.iter().find(|key| !is_set(key)) {
        None => Ok(()),
        Some(key) => {
            let text = format!(
                "{key} is not set for {owner}, so it can not be deleted; nothing was changed"
            );
            Err(Failure::new(Exit::Failed, text))
        }
    }
}
