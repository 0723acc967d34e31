//! `meta.properties`: whose log directory this is. A Java properties file, version 1 (KIP-631,
//! directory id: KIP-858).

use std::collections::BTreeMap;

use thalweg_config::{BadEscape, FileEntry, parse_properties};
use thalweg_types::{BrokerId, ClusterId, Uuid};

/// Content of `meta.properties`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaProperties {
    /// `cluster.id`.
    pub cluster_id: ClusterId,
    /// `node.id`.
    pub node_id: BrokerId,
    /// `directory.id`; files written before Kafka 3.7 have none.
    pub directory_id: Option<Uuid>,
}

/// Why a `meta.properties` can not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetaPropertiesError {
    #[error("its line {0} can not be read")]
    BadLine(usize),
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("{key}={value} is not valid")]
    Invalid { key: &'static str, value: String },
    #[error("version {0:?} is not supported (1 is)")]
    Version(String),
}

impl MetaProperties {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MetaPropertiesError> {
        use MetaPropertiesError::{BadLine, Invalid, Missing, Version};
        let entries: Result<Vec<FileEntry>, BadEscape> =
            parse_properties(bytes).into_iter().collect();
        let entries = entries.map_err(|bad| BadLine(bad.line))?.into_iter();
        let mut properties: BTreeMap<String, String> = entries
            .map(|entry| (entry.key, entry.value.trim_end().to_owned()))
            .collect();
        let mut take = |key: &'static str| properties.remove(key).ok_or(Missing(key));
        let version = take("version")?;
        if version != "1" {
            return Err(Version(version));
        }
        let cluster_id = ClusterId(take("cluster.id")?);
        let node_id = take("node.id")?;
        let node_id = match node_id.parse() {
            Ok(id) if id >= 0 => BrokerId(id),
            Ok(_) | Err(_) => {
                return Err(Invalid {
                    key: "node.id",
                    value: node_id,
                });
            }
        };
        let directory_id = match take("directory.id") {
            Err(_) => None,
            Ok(text) => match text.parse() {
                Ok(id) => Some(id),
                Err(_) => {
                    return Err(Invalid {
                        key: "directory.id",
                        value: text,
                    });
                }
            },
        };
        Ok(MetaProperties {
            cluster_id,
            node_id,
            directory_id,
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from("#\n#written by thalweg\n");
        text += &format!("cluster.id={}\n", self.cluster_id);
        if let Some(id) = self.directory_id {
            text += &format!("directory.id={id}\n");
        }
        text += &format!("node.id={}\nversion=1\n", self.node_id);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{MetaProperties, MetaPropertiesError};
    use thalweg_types::{BrokerId, ClusterId, Uuid};

    #[test]
    fn round_trip() {
        let meta = MetaProperties {
            cluster_id: ClusterId("4L6g3nShT-eMCtK--X86sw".into()),
            node_id: BrokerId(7),
            directory_id: Some(Uuid([9; 16])),
        };
        assert_eq!(MetaProperties::parse(meta.to_text().as_bytes()), Ok(meta));
    }

    #[test]
    fn reads_what_kafka_writes() {
        let text = "#\n#Tue Mar 04 10:00:00 UTC 2025\ncluster.id=4L6g3nShT-eMCtK--X86sw\n\
                    version=1\ndirectory.id=PjVWl1rmRMaWWWXvVCdPlA\nnode.id=1\n";
        let meta = MetaProperties::parse(text.as_bytes()).expect("valid");
        assert_eq!(meta.cluster_id.0, "4L6g3nShT-eMCtK--X86sw");
        assert_eq!(meta.node_id, BrokerId(1));
        assert_eq!(
            meta.directory_id.map(|id| id.to_string()).as_deref(),
            Some("PjVWl1rmRMaWWWXvVCdPlA")
        );
        let old =
            MetaProperties::parse(b"version = 1\ncluster.id: a\\:b\nnode.id=0").expect("valid");
        assert_eq!(old.cluster_id.0, "a:b");
        assert_eq!(old.directory_id, None);
    }

    #[test]
    fn st_28_says_what_is_wrong() {
        use MetaPropertiesError::{BadLine, Invalid, Missing, Version};
        for (text, error) in [
            (&b"\n\\u12"[..], BadLine(2)),
            (b"", Missing("version")),
            (b"version=0\nbroker.id=1", Version("0".into())),
            (b"version=1\nnode.id=1", Missing("cluster.id")),
            (
                b"version=1\ncluster.id=a\nnode.id=-1",
                Invalid {
                    key: "node.id",
                    value: "-1".into(),
                },
            ),
        ] {
            assert_eq!(MetaProperties::parse(text), Err(error));
        }
    }
}
