//! What is served with a configuration and lies outside its file: the keys that tokens are verified
//! with, the lists of who is allowed and who is denied, and files of clients.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::caller::Access;
use crate::caller::access::{self, FileError, Stamp};
use crate::caller::jwt::{KeyError, Verifier};
use crate::config::settings::{self, Settings};
use crate::gateway::Outside;
use crate::rulings::Book;

#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    #[error("tokens cannot be verified: {0}")]
    Keys(#[from] KeyError),
    #[error(transparent)]
    List(#[from] FileError),
}

/// What is in use, and what it was made from.
#[derive(Debug)]
pub struct Surroundings {
    tokens: Option<Tokens>,
    access: Option<Arc<Access>>,
    /// The state of all files when they were read, and when they were last looked at.
    read: Vec<Option<Stamp>>,
    lists: Vec<Option<Stamp>>,
    settings: settings::Access,
    /// What operators have decided.
    book: Arc<Book>,
    /// These have become part of the settings; they are only watched here.
    clients: Vec<PathBuf>,
}

#[derive(Debug)]
struct Tokens {
    settings: settings::Jwt,
    verifier: Arc<Verifier>,
    /// Keeps its keys up to date.
    keeper: Option<AbortHandle>,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

impl Surroundings {
    /// # Errors
    /// If there are no keys to verify tokens with, or a list cannot be read.
    pub fn of(settings: &Settings, book: Arc<Book>) -> Result<Self, OutsideError> {
        let clients = settings.identity.clients_files.clone();
        let lists = stamps(&settings.access, &clients);
        let access = Access::load(&settings.access)?;
        let access = Some(access).filter(|it| !it.allow.is_empty() || !it.deny.is_empty());
        let tokens = settings.identity.jwt.as_ref().map(Tokens::of).transpose()?;
        let settings = settings.access.clone();
        let access = access.map(Arc::new);
        let read = lists.clone();
        Ok(Surroundings { tokens, access, read, lists, settings, book, clients })
    }

    /// The same for another configuration, to [take over](Surroundings::take_over).
    ///
    /// # Errors
    /// As [`Surroundings::of`].
    pub fn next(&self, settings: &Settings) -> Result<Self, OutsideError> {
        let jwt = settings.identity.jwt.as_ref();
        let same = self.tokens.as_ref().map(|tokens| &tokens.settings) == jwt;
        let mut bare = settings.clone();
        if same {
            bare.identity.jwt = None;
        }
        Self::of(&bare, self.book.clone())
    }

    /// Goes on with what was made for another configuration. Tokens are verified as before if nothing
    /// was said about them: keys behind a URL would have to be fetched anew.
    pub fn take_over(&mut self, mut next: Self, settings: &Settings) {
        let jwt = settings.identity.jwt.as_ref();
        if self.tokens.as_ref().map(|tokens| &tokens.settings) == jwt {
            next.tokens = self.tokens.take();
        }
        *self = next;
        self.keep();
    }

    /// Sees to it that keys stay up to date, on the current runtime.
    pub fn keep(&mut self) {
        if let Some(tokens) = self.tokens.as_mut().filter(|tokens| tokens.keeper.is_none()) {
            let kept = tokio::spawn(tokens.verifier.clone().keep());
            tokens.keeper = Some(kept.abort_handle());
        }
    }

    /// Whether a list says something else than when it was read.
    #[must_use]
    pub fn have_changed(&self) -> bool {
        stamps(&self.settings, &self.clients) != self.lists
    }

    /// Whether the lists are those that were read, and not given up on.
    #[must_use]
    pub fn are_as_read(&self) -> bool {
        stamps(&self.settings, &self.clients) == self.read
    }

    /// Takes the lists for read as they are now, whatever they say: it has been complained about.
    pub fn give_up_on_lists(&mut self) {
        self.lists = stamps(&self.settings, &self.clients);
    }

    /// What operators have decided.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// What the gateway needs of it.
    #[must_use]
    pub fn outside(&self) -> Outside {
        let verifier = self.tokens.as_ref().map(|tokens| tokens.verifier.clone());
        Outside { verifier, access: self.access.clone(), rulings: self.book.rulings() }
    }
}

/// The state of all files that are watched.
fn stamps(access: &settings::Access, clients: &[PathBuf]) -> Vec<Option<Stamp>> {
    let clients = clients.iter().map(|path| Stamp::of(path));
    access::stamps(access).into_iter().chain(clients).collect()
}

impl Tokens {
    fn of(settings: &settings::Jwt) -> Result<Self, KeyError> {
        let verifier = Arc::new(Verifier::new(settings)?);
        Ok(Tokens { settings: settings.clone(), verifier, keeper: None })
    }
}
