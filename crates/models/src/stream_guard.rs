//! Guarantees for the stream of every model: exactly one end, nothing after it, and no silent cut.

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    message::{ModelRequest, Piece},
};
use futures::{StreamExt, stream};

use crate::{Model, PieceStream, images::without_images};

/// Sends a request to a model. The returned stream ends with [`Piece::End`] or with an error.
///
/// # Errors
/// The fault that kept the answer from starting, with the request's trace.
pub async fn ask(model: &dyn Model, request: ModelRequest) -> Result<PieceStream, Fault> {
    let trace = request.trace;
    let request = if model.takes_images() { request } else { without_images(request) };
    let pieces = model.stream(request).await.map_err(|fault| fault.with_trace(trace))?;
    let pieces = require_end(model.provider(), model.name(), pieces);
    Ok(pieces.map(move |piece| piece.map_err(|fault| fault.with_trace(trace))).boxed())
}

/// Enforces a proper end: drops pieces after the end or an error, and yields `model_stream_cut` if the stream stops
/// without either. Applying it twice changes nothing.
#[must_use]
pub fn require_end(provider: &str, model: &str, pieces: PieceStream) -> PieceStream {
    let names = (provider.to_owned(), model.to_owned());
    stream::unfold(Some((pieces, names)), |state| async move {
        let (mut pieces, names) = state?;
        match pieces.next().await {
            Some(Ok(end @ Piece::End { .. })) => Some((Ok(end), None)),
            Some(Ok(piece)) => Some((Ok(piece), Some((pieces, names)))),
            Some(Err(fault)) => Some((Err(fault), None)),
            None => Some((Err(cut_fault(&names.0, &names.1)), None)),
        }
    })
    .boxed()
}

/// The fault for a connection that broke before the answer was complete.
pub(crate) fn cut_fault(provider: &str, model: &str) -> Fault {
    Fault::new(Kind::ModelStreamCut, Operation::ModelRequest)
        .with(Fact::Service, provider.to_owned())
        .with(Fact::Model, model.to_owned())
}

#[cfg(test)]
mod tests {
    use budao_core::message::{ModelStop, Usage};
    use futures::executor::block_on;

    use super::*;

    fn played(pieces: Vec<Result<Piece, Fault>>) -> Vec<Result<Piece, Fault>> {
        block_on(require_end("demo", "m", stream::iter(pieces).boxed()).collect())
    }

    fn end() -> Piece {
        Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() }
    }

    #[test]
    fn a_stream_that_stops_without_its_end_was_cut() {
        let text = || Ok(Piece::Text("half".into()));
        assert_eq!(played(vec![text()]), [text(), Err(cut_fault("demo", "m"))]);
        assert_eq!(played(vec![]), [Err(cut_fault("demo", "m"))]);
    }

    #[test]
    fn no_piece_follows_the_end() {
        assert_eq!(played(vec![Ok(end()), Ok(Piece::Text("late".into()))]), [Ok(end())]);
    }

    #[test]
    fn no_piece_follows_an_error() {
        let fault = || Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
        assert_eq!(played(vec![Err(fault()), Ok(end())]), [Err(fault())]);
    }

    #[test]
    fn doing_it_twice_changes_nothing() {
        let twice =
            require_end("a", "b", require_end("demo", "m", stream::iter([Ok(end())]).boxed()));
        assert_eq!(block_on(twice.collect::<Vec<_>>()), [Ok(end())]);
    }
}
