//! Attributes what a server asks in the middle of a call to that call.
//!
//! Over HTTP the question arrives in the answer of the request that made the call, which the HTTP client notes. Any
//! other transport does not say: with exactly one running call the question is its own; with several it is nobody's,
//! because the calls may belong to sessions of different people.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use budao_tools::CallContext;
use rmcp::model::{ElicitResult, ElicitationAction, RequestId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::elicit;

/// The most requests of a server whose origin is remembered.
const ORIGINS_MAX: usize = 256;

/// The most questions of a server in one call that are put to a person.
const QUESTIONS_MAX: u32 = 32;

/// The running calls of one connection.
#[derive(Debug, Default)]
pub(crate) struct CallRouter(Mutex<RoutedCalls>);

#[derive(Debug, Default)]
struct RoutedCalls {
    running: Vec<Arc<RunningCall>>,
    /// Requests of the server, with the key of the call in whose answer each arrived.
    origins: VecDeque<(RequestId, Arc<str>)>,
}

/// A call that a server may ask something for.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) server: Arc<str>,
    pub(crate) context: CallContext,
    /// The questions so far. The lock makes the questions of a call wait for each other.
    asked: tokio::sync::Mutex<u32>,
    /// Cancelled when the call has left the router.
    has_left: CancellationToken,
}

/// Keeps a call in the router until it is dropped.
#[derive(Debug)]
pub(crate) struct RouteGuard {
    router: Arc<CallRouter>,
    call: Arc<RunningCall>,
}

impl RouteGuard {
    /// Asks the person to open addresses. Returns whether there are any and all were opened.
    pub(crate) async fn has_opened(&self, addresses: &[Value]) -> bool {
        for address in addresses {
            if self.call.elicit(address).await.action != ElicitationAction::Accept {
                return false;
            }
        }
        !addresses.is_empty()
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        self.router.lock().running.retain(|call| !Arc::ptr_eq(call, &self.call));
        self.call.has_left.cancel();
    }
}

impl CallRouter {
    /// Routes questions to a call until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, server: &Arc<str>, context: &CallContext) -> RouteGuard {
        let (server, context) = (Arc::clone(server), context.clone());
        let (asked, has_left) = (tokio::sync::Mutex::new(0), CancellationToken::new());
        let call = Arc::new(RunningCall { server, context, asked, has_left });
        self.lock().running.push(Arc::clone(&call));
        RouteGuard { router: Arc::clone(self), call }
    }

    /// Notes that a request of the server arrived in the answer to the call with this key.
    pub(crate) fn note_origin(&self, request: RequestId, key: &str) {
        let mut routed = self.lock();
        let Some(call) = routed.running.iter().find(|call| &*call.context.idempotency_key == key)
        else {
            return;
        };
        let key = Arc::clone(&call.context.idempotency_key);
        if routed.origins.len() == ORIGINS_MAX {
            routed.origins.pop_front();
        }
        routed.origins.push_back((request, key));
    }

    /// The call that a request of the server belongs to; `None` if that is not certain.
    pub(crate) fn call_of(&self, request: &RequestId) -> Option<Arc<RunningCall>> {
        let mut routed = self.lock();
        let noted = routed.origins.iter().position(|(id, _)| id == request);
        let noted = noted.and_then(|place| routed.origins.remove(place));
        if let Some((_, key)) = noted {
            return routed.running.iter().find(|call| call.context.idempotency_key == key).cloned();
        }
        match routed.running.as_slice() {
            [only] => Some(Arc::clone(only)),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RoutedCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    /// Puts a question of the server to a person. Questions of one call are asked one after the other.
    pub(crate) async fn elicit(&self, params: &Value) -> ElicitResult {
        let mut asked = self.asked.lock().await;
        *asked += 1;
        if *asked > QUESTIONS_MAX {
            return ElicitResult::new(ElicitationAction::Decline);
        }
        let place = asked.to_string();
        tokio::select! {
            biased;
            () = self.cancelled() => ElicitResult::new(ElicitationAction::Cancel),
            answer = elicit::ask(&self.server, params, &place, &self.context) => answer,
        }
    }

    /// Waits until the call is cancelled and has ended, so that a server which answers the call because its question was
    /// cancelled does not give the cancelled call a result.
    async fn cancelled(&self) {
        self.context.cancel.cancelled().await;
        self.has_left.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use budao_tools::isolation;

    use super::*;

    fn call(router: &Arc<CallRouter>, key: &str) -> RouteGuard {
        let context = CallContext { idempotency_key: key.into(), ..isolation::context() };
        router.enter(&"s".into(), &context)
    }

    #[test]
    fn a_question_goes_to_the_only_call_or_to_the_one_it_arrived_with() {
        let router = Arc::new(CallRouter::default());
        let id = RequestId::Number(7);
        assert!(router.call_of(&id).is_none(), "no call runs");
        let first = call(&router, "a");
        assert!(router.call_of(&id).is_some());
        let second = call(&router, "b");
        assert!(router.call_of(&id).is_none(), "it may be of either");
        router.note_origin(id.clone(), "b");
        let found = router.call_of(&id).unwrap();
        assert_eq!(&*found.context.idempotency_key, "b");
        router.note_origin(id.clone(), "b");
        drop(second);
        assert!(router.call_of(&id).is_none(), "its call is over");
        router.note_origin(id.clone(), "c");
        drop(first);
        assert!(router.call_of(&id).is_none());
    }
}
