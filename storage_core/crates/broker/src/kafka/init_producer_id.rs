//! InitProducerId: ids of idempotent producers. There are no transactions yet; whoever asks for one is told so for good, since
//! Java's producer would try for a minute after an error that may go away.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::context::Context;
use crate::edge::{Operation, Resource, is_allowed};

pub(super) fn answer(context: &Context, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    let response = InitProducerIdResponse::default();
    if request.transactional_id.is_some() {
        return refused(response, ResponseError::TransactionalIdAuthorizationFailed);
    }
    if !is_allowed(&context.listener.principal, Operation::Write, Resource::Cluster) {
        return refused(response, ResponseError::ClusterAuthorizationFailed);
    }
    let (id, epoch) = context.broker.init_producer();
    response.with_producer_id(ProducerId(id)).with_producer_epoch(epoch)
}

fn refused(response: InitProducerIdResponse, code: ResponseError) -> InitProducerIdResponse {
    response.with_error_code(code.code()).with_producer_id(ProducerId(-1)).with_producer_epoch(-1)
}
