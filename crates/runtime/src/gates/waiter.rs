//! A request that waits at a gate, as its task sees it. Small: ten thousand may wait.

use std::sync::{Mutex, MutexGuard};

use budao_core::gate::HoldReport;
use tokio::sync::Notify;

/// What a gate tells a waiting request.
#[derive(Debug)]
pub(super) enum News {
    /// The request still waits.
    Report(Box<HoldReport>),
    /// The request may be made.
    Granted,
    /// The request is refused.
    Refused(Box<HoldReport>),
}

/// The latest news for one waiting request. An end replaces a report that was not read.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    news: Mutex<Option<News>>,
    told: Notify,
}

impl Waiter {
    pub(super) fn tell(&self, news: News) {
        *self.lock() = Some(news);
        self.told.notify_one();
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(*self.lock(), Some(News::Granted))
    }

    pub(super) async fn news(&self) -> News {
        loop {
            if let Some(news) = self.lock().take() {
                return news;
            }
            self.told.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<News>> {
        self.news.lock().expect("no code panics while holding this")
    }
}
