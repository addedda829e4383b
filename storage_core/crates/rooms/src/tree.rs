//! The tree of a crate's modules, read from its sources: the file in which each one lies, the names that it has, and what
//! those names stand for. Code that only tests compile is left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Meta, Token, UseTree, Visibility};

/// The sources of a crate: text by path below its `src/`.
pub type Sources = BTreeMap<String, String>;

/// Reads every Rust file below `folder`, but not its `bin/`: a binary sees the crate as any other program does.
pub fn read_sources(folder: &Path) -> io::Result<Sources> {
    let mut sources = Sources::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            let below =
                path.strip_prefix(folder).expect("it was found in there").to_string_lossy().into_owned();
            if path.is_dir() {
                if below != "bin" {
                    folders.push(path);
                }
            } else if below.ends_with(".rs") {
                sources.insert(below, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(sources)
}

/// A module: a file of its own, or a part of one.
pub(crate) struct Module {
    pub(crate) file: String,
    parent: usize,
    children: BTreeMap<String, usize>,
    defined: Vec<String>,
    imports: Vec<Import>,
    pub(crate) items: Vec<Item>,
}

/// One name that a `use` brings into a module, with the path that it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    /// `None`: a glob.
    name: Option<String>,
    pub(crate) path: Vec<String>,
    pub(crate) is_reexport: bool,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    Module(usize),
    /// A thing that is defined in a module; also one whose definition is not seen, because a macro writes it.
    Thing {
        module: usize,
        name: &'a str,
    },
}

/// All modules of a crate; the first one is its root.
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
}

const ROOT: usize = 0;

/// Limit on the re-exports through which a name is followed. Imports may form a circle (`use a::x` in `b` and `use b::x` in
/// `a`), which rustc refuses, but this crate has to end on any source.
const STEPS_MAX: usize = 8;

impl Tree {
    /// Parses the files that are reached from `lib.rs`. Errors are sentences for whoever runs the check.
    pub(crate) fn parse(sources: &Sources) -> Result<Self, String> {
        let mut tree = Self { modules: Vec::new() };
        tree.add_file(sources, "lib.rs", "", ROOT)?;
        Ok(tree)
    }

    fn add_file(
        &mut self,
        sources: &Sources,
        file: &str,
        folder: &str,
        parent: usize,
    ) -> Result<usize, String> {
        let text =
            sources.get(file).ok_or_else(|| format!("{file} is declared as a module and does not exist"))?;
        let parsed = syn::parse_file(text).map_err(|error| format!("{file} cannot be parsed: {error}"))?;
        self.add_module(sources, file, folder, parent, parsed.items)
    }

    fn add_module(
        &mut self,
        sources: &Sources,
        file: &str,
        folder: &str,
        parent: usize,
        items: Vec<Item>,
    ) -> Result<usize, String> {
        let id = self.modules.len();
        let mut kept = Vec::new();
        let mut inner = Vec::new();
        for item in items {
            match item {
                item if is_for_tests(attributes_of(&item)) => {}
                Item::Mod(module) => inner.push(module),
                item => kept.push(item),
            }
        }
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            defined: kept.iter().filter_map(defined_name).collect(),
            imports: imports_of(&kept),
            items: kept,
        });
        for module in inner {
            let name = module.ident.to_string();
            let below = format!("{folder}{name}/");
            let child = match module.content {
                Some((_, items)) => self.add_module(sources, file, &below, id, items)?,
                None => {
                    let flat = format!("{folder}{name}.rs");
                    let nested = format!("{below}mod.rs");
                    let file = if sources.contains_key(&nested) { nested } else { flat };
                    self.add_file(sources, &file, &below, id)?
                }
            };
            self.modules[id].children.entry(name).or_insert(child);
        }
        Ok(id)
    }

    /// The target of `path` where it is written; `None` for another crate, the prelude and a generic parameter.
    pub(crate) fn resolve<'a>(&'a self, module: usize, path: &'a [String]) -> Option<Target<'a>> {
        self.resolve_in(module, path, true, STEPS_MAX)
    }

    /// What a name of one segment means if a glob or a re-export has brought it. Any other import counts where it stands,
    /// and what the module defines is in its own file.
    pub(crate) fn resolve_passed_on<'a>(&'a self, module: usize, name: &'a str) -> Option<Target<'a>> {
        let here = &self.modules[module];
        let mut named = here.imports.iter().filter(|import| import.name.as_deref() == Some(name));
        let is_counted = here.children.contains_key(name)
            || here.defined.iter().any(|other| other == name)
            || named.any(|import| !import.is_reexport);
        if is_counted { None } else { self.look_up(module, name, true, STEPS_MAX) }
    }

    /// Whether one module lies inside of another one, in a file of its own or not.
    pub(crate) fn is_inside(&self, mut module: usize, outer: usize) -> bool {
        while module != ROOT {
            module = self.modules[module].parent;
            if module == outer {
                return true;
            }
        }
        false
    }

    /// `is_whole` says that the path ends here where it is used, too; an import may stand for the beginning of a longer one.
    fn resolve_in<'a>(
        &'a self,
        module: usize,
        path: &'a [String],
        is_whole: bool,
        steps: usize,
    ) -> Option<Target<'a>> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(ROOT),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent),
            name => self.look_up(module, name, is_whole && rest.is_empty(), steps)?,
        };
        while let (Target::Module(inside), Some((next, after))) = (at, rest.split_first()) {
            rest = after;
            at = match next.as_str() {
                "self" => at,
                "super" => Target::Module(self.modules[inside].parent),
                // A name that is not found is there all the same: a macro writes it, or the module passes on another crate's.
                name => self
                    .look_up(inside, name, is_whole && rest.is_empty(), steps)
                    .unwrap_or(Target::Thing { module: inside, name }),
            };
        }
        Some(at)
    }

    /// The target of a name inside a module. A module and a function may share one: the last segment of a path is rather the
    /// function, any other one the module.
    fn look_up<'a>(
        &'a self,
        module: usize,
        name: &'a str,
        is_last: bool,
        steps: usize,
    ) -> Option<Target<'a>> {
        let here = &self.modules[module];
        let child = here.children.get(name).map(|child| Target::Module(*child));
        let defined =
            || here.defined.iter().any(|other| other == name).then_some(Target::Thing { module, name });
        let imported = || {
            let left = steps.checked_sub(1)?;
            let named = here.imports.iter().filter(|import| import.name.as_deref() == Some(name));
            named.filter_map(|import| self.resolve_in(module, &import.path, is_last, left)).next()
        };
        let globbed = || self.through_globs(module, name, is_last, steps);
        if is_last {
            defined().or_else(imported).or(child).or_else(globbed)
        } else {
            child.or_else(imported).or_else(defined).or_else(globbed)
        }
    }

    fn through_globs<'a>(
        &'a self,
        module: usize,
        name: &'a str,
        is_last: bool,
        steps: usize,
    ) -> Option<Target<'a>> {
        let left = steps.checked_sub(1)?;
        let globs = self.modules[module].imports.iter().filter(|import| import.name.is_none());
        globs
            .filter_map(|glob| match self.resolve_in(module, &glob.path, false, left)? {
                Target::Module(inside) if inside != module => self.look_up(inside, name, is_last, left),
                _ => None,
            })
            .next()
    }
}

/// Whether an item is compiled by tests alone. `any(test, feature = …)` is not: with the feature it is in the crate.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|condition| !may_hold_without_tests(&condition))
        }
        _ => false,
    })
}

fn may_hold_without_tests(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => !path.is_ident("test"),
        Meta::List(list) => {
            let parser = syn::punctuated::Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parser) else { return true };
            if list.path.is_ident("all") {
                parts.iter().all(may_hold_without_tests)
            } else if list.path.is_ident("any") {
                parts.iter().any(may_hold_without_tests)
            } else {
                true
            }
        }
        Meta::NameValue(_) => true,
    }
}

/// The attributes of an item; none for what Walrus does not write.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// The imports of a module, those inside of its functions among them: they seldom share a name with another one.
fn imports_of(items: &[Item]) -> Vec<Import> {
    struct Collector(Vec<Import>);
    impl<'ast> Visit<'ast> for Collector {
        fn visit_item(&mut self, item: &'ast Item) {
            if !is_for_tests(attributes_of(item)) {
                visit::visit_item(self, item);
            }
        }

        fn visit_item_use(&mut self, item: &'ast ItemUse) {
            self.0.extend(imports_in(item));
        }
    }
    let mut collector = Collector(Vec::new());
    for item in items {
        collector.visit_item(item);
    }
    collector.0
}

/// The names that one `use` brings.
pub(crate) fn imports_in(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        unfold(&item.tree, &mut Vec::new(), is_reexport, &mut found);
    }
    found
}

fn unfold(tree: &UseTree, before: &mut Vec<String>, is_reexport: bool, found: &mut Vec<Import>) {
    let mut add = |name: Option<String>, path: Vec<String>| found.push(Import { name, path, is_reexport });
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            unfold(&path.tree, before, is_reexport, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => add(before.last().cloned(), before.clone()),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            add(Some(name.clone()), [before.as_slice(), &[name]].concat());
        }
        UseTree::Rename(renamed) if renamed.ident == "self" => {
            add(Some(renamed.rename.to_string()), before.clone())
        }
        UseTree::Rename(renamed) => {
            add(Some(renamed.rename.to_string()), [before.as_slice(), &[renamed.ident.to_string()]].concat());
        }
        UseTree::Glob(_) => add(None, before.clone()),
        UseTree::Group(group) => {
            for tree in &group.items {
                unfold(tree, before, is_reexport, found);
            }
        }
    }
}
