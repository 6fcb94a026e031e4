//! Explains an answer: a question in a form, or one of the known ones; then each step, what the witnesses said, and what Argo CD would get.

mod question;
mod result;

pub(crate) use self::{
    question::{QuestionForm, form, known},
    result::{explained, remembered},
};
