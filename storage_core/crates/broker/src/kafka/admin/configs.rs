//! DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as Replaced;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as Altered;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;
use walrus_metadata::TopicConfig;

use super::changes::{self, Step};
use super::described::{self, Wish};
use super::{Refused, check_admin, check_cluster, topic};
use crate::edge::Operation;
use crate::kafka::context::Context;
use crate::node::error::Error;
use crate::node::names::TopicPath;
use crate::topics::catalogue::ConfigChange;
use crate::topics::view::TopicDescription;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub(in crate::kafka) async fn describe(
    context: &Context,
    version: i16,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let mut rows = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let wish = Wish {
            version,
            names: resource.configuration_keys.as_deref(),
            synonyms: request.include_synonyms,
            documentation: request.include_documentation,
        };
        let described = describe_one(context, &resource, wish).await;
        let row = DescribeConfigsResult::default()
            .with_error_message(None)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        rows.push(match described {
            Ok(configs) => row.with_configs(configs),
            Err(refused) => row.with_error_code(refused.code.code()).with_error_message(refused.message()),
        });
    }
    DescribeConfigsResponse::default().with_results(rows)
}

async fn describe_one(
    context: &Context,
    resource: &DescribeConfigsResource,
    wish: Wish<'_>,
) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    match resource.resource_type {
        TOPIC => {
            let path = topic(context, &resource.resource_name, Operation::Describe)?;
            let description = context.broker.describe_topic(&path).await?;
            Ok(described::of_topic(wish, &description.settings))
        }
        BROKER => {
            check_cluster(context, Operation::Describe)?;
            let me = context.broker.cluster().node_id().to_string();
            // An empty name means what holds for all brokers.
            if ![me.as_str(), ""].contains(&resource.resource_name.as_str()) {
                let why = format!("this is broker {me}: ask broker {} itself", resource.resource_name);
                return Err(Refused::new(ResponseError::InvalidRequest, why));
            }
            Ok(described::of_broker(context, wish))
        }
        other => Err(unknown_kind(other)),
    }
}

pub(in crate::kafka) async fn alter(context: &Context, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut rows = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let given = resource
            .configs
            .into_iter()
            .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
        let given: Vec<_> = given.collect();
        let altered = alter_one(context, kind, &name, request.validate_only, |own, _| {
            changes::replace(&own.values, given)
        })
        .await;
        let row =
            Replaced::default().with_error_message(None).with_resource_type(kind).with_resource_name(name);
        rows.push(match altered {
            Ok(()) => row,
            Err(refused) => row.with_error_code(refused.code.code()).with_error_message(refused.message()),
        });
    }
    AlterConfigsResponse::default().with_responses(rows)
}

pub(in crate::kafka) async fn alter_incrementally(
    context: &Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut rows = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let steps = resource.configs.into_iter().map(|config| {
            let unknown = || {
                Refused::new(
                    ResponseError::InvalidRequest,
                    format!("no operation is {}", config.config_operation),
                )
            };
            let step = Step::of(config.config_operation).ok_or_else(unknown)?;
            Ok((config.name.to_string(), step, config.value.map(|value| value.to_string())))
        });
        let steps: Result<Vec<_>, Refused> = steps.collect();
        let change = |_: &TopicConfig, description: &TopicDescription| {
            let in_force = description.settings.iter();
            let in_force =
                in_force.map(|setting| (setting.definition.name.to_owned(), setting.value.clone()));
            changes::step_by_step(&in_force.collect(), steps?)
        };
        let altered = alter_one(context, kind, &name, request.validate_only, change).await;
        let row =
            Altered::default().with_error_message(None).with_resource_type(kind).with_resource_name(name);
        rows.push(match altered {
            Ok(()) => row,
            Err(refused) => row.with_error_code(refused.code.code()).with_error_message(refused.message()),
        });
    }
    IncrementalAlterConfigsResponse::default().with_responses(rows)
}

async fn alter_one(
    context: &Context,
    kind: i8,
    name: &StrBytes,
    only_check: bool,
    change: impl FnOnce(&TopicConfig, &TopicDescription) -> Result<ConfigChange, Refused>,
) -> Result<(), Refused> {
    check_admin(context)?;
    if kind == BROKER {
        check_cluster(context, Operation::Alter)?;
        let why = "a broker's settings are not changed over Kafka's protocol: use `walrus config`";
        return Err(Refused::new(ResponseError::InvalidRequest, why));
    }
    if kind != TOPIC {
        return Err(unknown_kind(kind));
    }
    let path = topic(context, name, Operation::Alter)?;
    let description = context.broker.describe_topic(&path).await?;
    let own = own_settings(context, &path)?;
    let change = ConfigChange { expect: Some(own.version), ..change(&own, &description)? };
    own.check(&change.set, &change.unset).map_err(|wrong| {
        Refused::new(ResponseError::InvalidConfig, format!("{}: {}", wrong.name, wrong.problem))
    })?;
    if !only_check {
        context.broker.alter_topic(&path, change).await?;
    }
    Ok(())
}

/// The settings that a topic has itself.
fn own_settings(context: &Context, path: &TopicPath) -> Result<TopicConfig, Refused> {
    let unknown = || Error::UnknownTopic { topic: path.to_string() };
    let routing = context.broker.cluster().routing();
    Ok(routing.find(path).ok_or_else(unknown)?.topic.config.clone())
}

fn unknown_kind(kind: i8) -> Refused {
    let why = format!("resources of kind {kind} have no settings here: ask for topics (2) or brokers (4)");
    Refused::new(ResponseError::InvalidRequest, why)
}
