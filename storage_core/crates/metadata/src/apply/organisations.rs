//! Commands about organisations.

use std::sync::Arc;

use walrus_model::TopicId;

use crate::answer::Answer;
use crate::organisation::{DEFAULT_ORG, INTERNAL_ORG, Organisation, OrganisationLimits, is_org_name};
use crate::rejection::CommandRejection;
use crate::state::Metadata;

pub(super) fn set_organisation(
    metadata: &mut Metadata,
    name: &str,
    limits: OrganisationLimits,
    version: u64,
) -> Result<Answer, CommandRejection> {
    if !is_org_name(name) {
        return Err(CommandRejection::InvalidOrganisationName { name: name.to_owned() });
    }
    let found = metadata
        .organisations
        .entry(name.to_owned())
        .or_insert_with(|| Organisation { version, ..Organisation::default() });
    if found.limits != limits {
        (found.limits, found.version) = (limits, version);
    }
    Ok(Answer::Nothing)
}

pub(super) fn remove_organisation(metadata: &mut Metadata, name: &str) -> Result<Answer, CommandRejection> {
    let topics = metadata.sizes.of_org(name).topics;
    if topics > 0 {
        return Err(CommandRejection::OrganisationHasTopics { name: name.to_owned(), topics });
    }
    metadata.organisations.remove(name);
    Ok(Answer::Nothing)
}

/// Lists the organisations that have topics, and the default one, and gives Walrus's own topics their place: what a state that
/// knew no organisations lacks.
pub(super) fn list_organisations(metadata: &mut Metadata, version: u64) {
    let Metadata { topics, names, organisations, .. } = metadata;
    let internal: Vec<TopicId> =
        topics.values().filter(|topic| topic.internal).map(|topic| topic.id).collect();
    for id in internal {
        let Some(topic) = topics.get_mut(&id).map(Arc::make_mut) else { continue };
        if let Some(names) = names.get_mut(&topic.org) {
            names.remove(&topic.name);
        }
        topic.org = INTERNAL_ORG.to_owned();
        names.entry(topic.org.clone()).or_default().insert(topic.name.clone(), topic.id);
    }
    *names = names
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(org, names)| (org.clone(), names.clone()))
        .collect();
    let named = names.keys().filter(|org| *org != INTERNAL_ORG).cloned();
    for org in named.chain([DEFAULT_ORG.to_owned()]) {
        let organisation = Organisation { version, ..Organisation::default() };
        organisations.entry(org).or_insert(organisation);
    }
    metadata.count_topics();
}
