//! The page of the models for people: parameters with their sources, and what each model gives.

use super::model::Model;
use super::parameters::ModelError;
use super::validation::{Figure, figures};
use std::fmt::Write;

/// Markdown of the models, a section each.
pub fn render_page(models: &[Model]) -> Result<String, ModelError> {
    let mut page = String::from(
        "# Media models\n\n\
         Written by `strata-disk models --markdown`. [media](../media.md) says what a model is and what it is not.\n\n\
         The figures of each model are what its parameters imply and what it gives on a virtual clock, without what a host\n\
         adds. `benches/bench_media_models.py` takes the same figures with fio through the kernel.\n",
    );
    for model in models {
        section(&mut page, model)?;
    }
    Ok(page)
}

fn section(page: &mut String, model: &Model) -> Result<(), ModelError> {
    let cache = if model.volatile_cache { "is lost" } else { "is kept" };
    let _ = write!(page, "\n## {}\n\n{}. At a power cut its cache {cache}.\n\n", model.name, model.about);
    page.push_str("| parameter | value | source |\n| --- | --- | --- |\n");
    for (name, parameter) in &model.parameters {
        let _ = writeln!(page, "| `{name}` | {} | {} |", parameter.value, parameter.source);
    }
    page.push_str("\n| load | implied | modelled | difference |\n| --- | --- | --- | --- |\n");
    for figure in figures(model)? {
        let (implied, modelled) =
            (shown(&figure, figure.implied_per_s), shown(&figure, figure.modelled_per_s));
        let percent = 100.0 * (figure.modelled_per_s / figure.implied_per_s - 1.0);
        let _ = writeln!(page, "| {} | {implied} | {modelled} | {percent:+.1} % |", described(&figure));
    }
    Ok(())
}

fn described(figure: &Figure) -> String {
    let load = figure.load;
    let order = if load.rw.starts_with("rand") { "random" } else { "sequential" };
    let kind = if load.rw.contains("read") { "reads" } else { "writes" };
    let flush = if load.flush { ", each flushed" } else { "" };
    let after = if load.after_bytes > 0 { ", reserve or credits used up" } else { "" };
    format!("{order} {kind} of {} KiB at depth {}{flush}{after}", load.bytes >> 10, load.depth)
}

/// Small requests are counted, large ones measured in bytes.
fn shown(figure: &Figure, per_s: f64) -> String {
    if figure.load.bytes >= 128 << 10 {
        return format!("{:.0} MB/s", per_s * figure.load.bytes as f64 / 1e6);
    }
    if per_s < 1000.0 { format!("{per_s:.1} a second") } else { format!("{per_s:.0} a second") }
}
