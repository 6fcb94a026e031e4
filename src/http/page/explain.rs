//! Explains an answer: a question in a form, or one of the known ones; then each step, the evidence, and the answer to Argo CD.

mod elements;
mod question;
mod result;

pub(crate) use self::{
    question::{QuestionForm, form, known},
    result::{explained, remembered},
};
