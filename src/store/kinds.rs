//! The kinds of store: one line each.

use std::rc::Rc;

use super::control::{OpenedStore, StoreContext};
use super::{CheckOutcome, CheckSet, Decided, DeferredCheck, Store};
use crate::config::settings::{self, StoreKind};

/// Each kind has its name in [`StoreKind`], what a worker holds of it, and its module, which has a
/// function `open`. An enum and no trait object: a decision that waits then needs no boxed future.
macro_rules! store_kinds {
    ($($kind:ident: $store:ty, in $module:ident;)+) => {
        /// The store that the configuration names, as one worker holds it.
        #[derive(Debug)]
        pub enum AnyStore {
            $($kind($store),)+
        }

        /// Opens the store that the configuration names.
        ///
        /// # Errors
        /// If the system has no randomness to give.
        pub fn open(
            settings: &settings::Store,
            context: StoreContext<'_>,
        ) -> Result<OpenedStore, getrandom::Error> {
            match settings.kind {
                $(StoreKind::$kind { .. } => super::$module::open(settings, context),)+
            }
        }

        impl Store for AnyStore {
            #[inline]
            fn try_decide(
                &self,
                asked: CheckSet<'_>,
                outcomes: &mut [CheckOutcome],
            ) -> Option<Decided> {
                match self {
                    $(AnyStore::$kind(store) => store.try_decide(asked, outcomes),)+
                }
            }

            async fn decide(
                &self,
                asked: CheckSet<'_>,
                outcomes: &mut [CheckOutcome],
            ) -> Decided {
                match self {
                    $(AnyStore::$kind(store) => store.decide(asked, outcomes).await,)+
                }
            }

            async fn charge_after(&self, charges: &[DeferredCheck]) {
                match self {
                    $(AnyStore::$kind(store) => store.charge_after(charges).await,)+
                }
            }

            fn try_charge_after(&self, charges: &[DeferredCheck]) -> bool {
                match self {
                    $(AnyStore::$kind(store) => store.try_charge_after(charges),)+
                }
            }

            fn charge_detached(&self, charges: &[DeferredCheck]) {
                match self {
                    $(AnyStore::$kind(store) => store.charge_detached(charges),)+
                }
            }

            fn release(&self, slots: &[DeferredCheck]) {
                match self {
                    $(AnyStore::$kind(store) => store.release(slots),)+
                }
            }

            async fn flush(&self) {
                match self {
                    $(AnyStore::$kind(store) => store.flush().await,)+
                }
            }
        }
    };
}

store_kinds! {
    Memory: std::sync::Arc<super::MemoryStore>, in memory;
    Redis: super::redis::RedisStore, in redis;
    Hybrid: super::hybrid::HybridStore, in hybrid;
}

impl AnyStore {
    /// Charges deferred costs, and goes on with that if the caller is cancelled meanwhile.
    pub async fn charge_uncancellable(
        self: &Rc<Self>,
        charges: Vec<DeferredCheck>,
    ) -> Vec<DeferredCheck> {
        if self.try_charge_after(&charges) {
            return charges;
        }
        let store = self.clone();
        let charged = tokio::task::spawn_local(async move {
            store.charge_after(&charges).await;
            charges
        });
        charged.await.unwrap_or_default()
    }
}
