//! The targets of conversion webhooks.

use super::WebhookTarget;
use berth_objects::custom::conversion::ConversionWebhook;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The targets of the conversion webhooks of definitions, with their idle connections. Each is kept until its
/// definition changes.
#[derive(Debug, Default)]
pub(crate) struct ConversionTargets(Mutex<Vec<(Weak<ConversionWebhook>, Arc<WebhookTarget>)>>);

impl ConversionTargets {
    /// The target of a webhook.
    pub(crate) fn of(&self, webhook: &Arc<ConversionWebhook>) -> Arc<WebhookTarget> {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |known: &Weak<ConversionWebhook>| known.as_ptr() == Arc::as_ptr(webhook);
        if let Some((_, target)) = targets.iter().find(|(known, _)| is_of(known)) {
            return Arc::clone(target);
        }
        targets.retain(|(known, _)| known.strong_count() > 0);
        let target = Arc::new(WebhookTarget::new(&webhook.config, webhook.bundle()));
        targets.push((Arc::downgrade(webhook), Arc::clone(&target)));
        target
    }
}
