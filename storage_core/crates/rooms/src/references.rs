//! The references between the files of a crate: every name of another file that a `use` brings, that is written out as a
//! path, or that stands in the tokens of a macro; and every `impl`, since a call of a method leaves no name behind.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, ItemImpl, ItemUse, Macro, Path, Stmt, TraitItem, Type};

use crate::tree::{Sources, Target, Tree, attributes_of, imports_in, is_for_tests};

/// A thing and the file that defines it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thing {
    /// Path below `src/`.
    pub file: String,
    /// The thing's name there.
    pub name: String,
}

/// An `impl` block of a type that the crate defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Impl {
    /// The file that the block stands in.
    pub file: String,
    /// The type that gets methods.
    pub of: Thing,
    /// The trait that is implemented; `None` for methods of the type's own, and for a trait of another crate.
    pub of_trait: Option<Thing>,
}

/// All references between the files of a crate.
#[derive(Debug, Default)]
pub struct Knowledge {
    /// All files of the crate, but those that only tests compile.
    pub files: BTreeSet<String>,
    /// Names by (file that knows, file that is known). No file is its own neighbour.
    pub arrows: BTreeMap<(String, String), BTreeSet<String>>,
    /// Pairs (folder's file, file in it) where the folder only passes on a name of its own file. Whoever uses the name knows the
    /// file behind it, so the pair is no arrow; but a folder must not pass on what belongs in a room above.
    pub passed_on: BTreeSet<(String, String)>,
    /// The `impl` blocks of types of the crate.
    pub impls: BTreeSet<Impl>,
}

impl Knowledge {
    /// Reads the sources of one crate. An error is a sentence that names the file.
    pub fn read(sources: &Sources) -> Result<Self, String> {
        let tree = Tree::parse(sources)?;
        let mut knowledge = Self::default();
        for module in 0..tree.modules.len() {
            knowledge.files.insert(tree.modules[module].file.clone());
            let mut reader = Reader { tree: &tree, module, knowledge: &mut knowledge };
            for item in &tree.modules[module].items {
                reader.visit_item(item);
            }
        }
        Ok(knowledge)
    }

    /// The files that a file knows.
    pub fn known_by<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        self.arrows.keys().filter(move |(from, _)| from == file).map(|(_, to)| to.as_str())
    }
}

struct Reader<'a> {
    tree: &'a Tree,
    module: usize,
    knowledge: &'a mut Knowledge,
}

impl Reader<'_> {
    fn file(&self) -> &str {
        &self.tree.modules[self.module].file
    }

    fn note(&mut self, target: Target<'_>) {
        let thing = self.named(target);
        let from = self.file().to_owned();
        if from != thing.file {
            self.knowledge.arrows.entry((from, thing.file)).or_default().insert(thing.name);
        }
    }

    fn named(&self, target: Target<'_>) -> Thing {
        let (module, name) = match target {
            Target::Module(module) => (module, "self"),
            Target::Thing { module, name } => (module, name),
        };
        Thing { file: self.tree.modules[module].file.clone(), name: name.to_owned() }
    }

    fn note_path(&mut self, path: &[String]) {
        let target = match path {
            [name] => self.tree.resolve_passed_on(self.module, name),
            path => self.tree.resolve(self.module, path),
        };
        if let Some(target @ Target::Thing { .. }) = target {
            self.note(target);
        }
    }

    fn thing(&self, path: &Path) -> Option<Thing> {
        match self.tree.resolve(self.module, &segments(path)?)? {
            Target::Module(_) => None,
            thing => Some(self.named(thing)),
        }
    }

    fn note_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for path in paths_among(&tokens) {
            self.note_path(&path);
        }
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.note_tokens(group.stream());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !matches!(item, TraitItem::Fn(function) if is_for_tests(&function.attrs)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let is_for_tests = match statement {
            Stmt::Local(local) => is_for_tests(&local.attrs),
            Stmt::Macro(invoked) => is_for_tests(&invoked.attrs),
            Stmt::Expr(Expr::Block(block), _) => is_for_tests(&block.attrs),
            Stmt::Expr(Expr::Call(call), _) => is_for_tests(&call.attrs),
            Stmt::Expr(Expr::MethodCall(call), _) => is_for_tests(&call.attrs),
            _ => false,
        };
        if !is_for_tests {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports_in(item) {
            let Some(target) = self.tree.resolve(self.module, &import.path) else { continue };
            let (Target::Module(inside) | Target::Thing { module: inside, .. }) = target;
            if import.is_reexport && self.tree.is_inside(inside, self.module) {
                let files = (self.file().to_owned(), self.tree.modules[inside].file.clone());
                self.knowledge.passed_on.insert(files);
            } else if import.is_reexport || matches!(target, Target::Thing { .. }) {
                self.note(target);
            } // else a module is imported: what is taken out of it is written out behind its name
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let Some(of) = type_path(&item.self_ty).and_then(|path| self.thing(path)) {
            let of_trait = item.trait_.as_ref().and_then(|(path, _)| self.thing(path));
            self.knowledge.impls.insert(Impl { file: self.file().to_owned(), of, of_trait });
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if let Some(path) = segments(path) {
            self.note_path(&path);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        visit::visit_macro(self, invoked);
        self.note_tokens(invoked.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {
        // Attributes, doc comments among them, may name what the file itself does not use.
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(in crate::…)` says who may see a thing, not what its file knows.
    }
}

/// Paths among tokens that nobody has parsed: names with `::` between them, one name alone too. Left out is what follows
/// a dot, a field or a method, and what follows `::` alone, which begins at another crate.
fn paths_among(tokens: &[TokenTree]) -> Vec<Vec<String>> {
    let is = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == wanted);
    let follows =
        |at: usize, wanted: char, times: usize| at >= times && (1..=times).all(|back| is(at - back, wanted));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begin = at;
        let mut path = Vec::new();
        while let Some(TokenTree::Ident(name)) = tokens.get(at) {
            path.push(name.to_string());
            at += 1;
            if !(is(at, ':') && is(at + 1, ':') && matches!(tokens.get(at + 2), Some(TokenTree::Ident(_)))) {
                break;
            }
            at += 2;
        }
        let is_member = follows(begin, '.', 1) && !follows(begin, '.', 2);
        if path.is_empty() {
            at += 1;
        } else if !is_member && !follows(begin, ':', 2) {
            found.push(path);
        }
    }
    found
}

/// The names of a path that begins in this crate; `None` for `::name`, which begins at another one.
fn segments(path: &Path) -> Option<Vec<String>> {
    let names = || path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    path.leading_colon.is_none().then(names)
}

fn type_path(of: &Type) -> Option<&Path> {
    match of {
        Type::Path(path) if path.qself.is_none() => Some(&path.path),
        Type::Reference(reference) => type_path(&reference.elem),
        Type::Paren(inner) => type_path(&inner.elem),
        Type::Group(inner) => type_path(&inner.elem),
        _ => None,
    }
}
