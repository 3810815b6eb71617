//! Rows that the benchmark `run_path` wrote, as a table and a plot under `docs/bench`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use plotters::prelude::*;
use serde::Deserialize;

use crate::layout::Layout;

/// The name of the file with the rows, one JSON object a line.
pub const FILE: &str = "run_path.jsonl";

/// The side that the others are compared with.
const OURS: &str = "EP";

/// What was measured of one network.
#[derive(Deserialize)]
struct Row {
    name: String,
    /// The first run of a session, which traces the network.
    first_ms: f64,
    /// Medians by side, `EP` among them.
    ms: BTreeMap<String, f64>,
}

impl Row {
    fn ours(&self) -> f64 {
        self.ms.get(OURS).copied().unwrap_or(f64::NAN)
    }

    /// How many times as long as another side ours takes.
    fn ratio(&self, side: &str) -> Option<f64> {
        self.ms.get(side).map(|ms| self.ours() / ms)
    }
}

/// Writes `docs/bench/<name>.md` and `.svg` from the rows in `file`, measured on `machine`.
pub fn save(layout: &Layout, name: &str, file: &Path, machine: &str) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let rows: Vec<Row> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} does not hold rows of run_path", file.display()))?;
    ensure!(!rows.is_empty(), "{} is empty", file.display());
    let folder = layout.root().join("docs").join("bench");
    let sides = sides(&rows);
    fs::write(folder.join(format!("{name}.md")), table(&rows, &sides, name, machine))?;
    plot(&rows, &sides, &folder.join(format!("{name}.svg")), machine)?;
    println!("wrote docs/bench/{name}.md and .svg");
    Ok(())
}

/// Every side but ours, in order of its name.
fn sides(rows: &[Row]) -> Vec<String> {
    let mut sides: Vec<String> = rows.iter().flat_map(|row| row.ms.keys()).cloned().collect();
    sides.retain(|side| side != OURS);
    sides.sort();
    sides.dedup();
    sides
}

fn table(rows: &[Row], sides: &[String], name: &str, machine: &str) -> String {
    let mut text = format!(
        "# Runs through ONNX Runtime\n\nMeasured on {machine} by `cargo xtask bench`: medians of runs that take turns, \
         from tensors in host memory to tensors in host memory. EP: a session with `claim=all`. mlx-safe: the same \
         network written in Rust and compiled. The first run of a session traces the network.\n\n\
         ![ratios]({name}.svg)\n\n| network | first ms | EP ms |"
    );
    let mut rule = "|---|--:|--:|".to_owned();
    for side in sides {
        let _ = write!(text, " {side} ms | EP / {side} |");
        rule.push_str("--:|--:|");
    }
    let _ = write!(text, "\n{rule}\n");
    for row in rows {
        let _ = write!(text, "| {} | {:.1} | {:.3} |", row.name, row.first_ms, row.ours());
        for side in sides {
            match (row.ms.get(side), row.ratio(side)) {
                (Some(ms), Some(ratio)) => _ = write!(text, " {ms:.3} | {ratio:.2} |"),
                _ => text.push_str(" - | - |"),
            }
        }
        text.push('\n');
    }
    text
}

/// Pixels of a bar's row, of the column with the names and of that with the bars.
const ROW: i32 = 28;
const NAMES: i32 = 440;
const BARS: i32 = 440;

/// A bar for each row and side, on a logarithmic axis: how many times as long as the side's our run takes. Bars to the left
/// of the line are gains.
fn plot(rows: &[Row], sides: &[String], path: &Path, machine: &str) -> Result<()> {
    let bars: Vec<(String, f64)> = rows
        .iter()
        .flat_map(|row| {
            sides.iter().filter_map(|side| Some((format!("{} / {side}", row.name), row.ratio(side)?)))
        })
        .collect();
    let reach = bars.iter().fold(2f64.ln(), |most, (_, ratio)| most.max(ratio.ln().abs()));
    let middle = NAMES + BARS / 2;
    let at = |ratio: f64| middle + (ratio.ln() / reach * f64::from(BARS / 2)) as i32;
    let bottom = 40 + ROW * bars.len() as i32;
    let failed =
        |error: DrawingAreaErrorKind<std::io::Error>| anyhow!("cannot draw {}: {error}", path.display());
    let area = SVGBackend::new(path, ((NAMES + BARS + 60) as u32, bottom as u32 + 10)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let text = ("sans-serif", 14).into_font();
    let title = format!("time of a run with the EP / time of others, {machine}");
    area.draw(&Text::new(title, (10, 10), text.clone())).map_err(failed)?;
    for (index, (name, ratio)) in bars.iter().enumerate() {
        let top = 40 + ROW * index as i32;
        let colour = if *ratio <= 1.0 { RGBColor(90, 160, 110) } else { RGBColor(220, 150, 90) };
        area.draw(&Text::new(name.clone(), (10, top + 6), text.clone())).map_err(failed)?;
        area.draw(&Rectangle::new([(middle, top + 2), (at(*ratio), top + ROW - 4)], colour.filled()))
            .map_err(failed)?;
        let beside = (at(ratio.max(1.0)) + 6, top + 6);
        area.draw(&Text::new(format!("{ratio:.2}"), beside, text.clone())).map_err(failed)?;
    }
    area.draw(&PathElement::new([(middle, 36), (middle, bottom)], BLACK)).map_err(failed)?;
    area.present().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"{"name": "a", "first_ms": 9.0, "ms": {"EP": 2.0, "mlx-safe": 1.0, "ORT CPU": 4.0}}
{"name": "b", "first_ms": 9.0, "ms": {"EP": 2.0, "ORT CPU": 2.0}}"#;

    #[test]
    fn a_table_and_a_plot_with_every_ratio() {
        let folder = tempfile::tempdir().unwrap();
        let rows = folder.path().join(FILE);
        fs::write(&rows, ROWS).unwrap();
        fs::create_dir_all(folder.path().join("docs/bench")).unwrap();
        save(&Layout::at(folder.path()), "run-path", &rows, "a machine").unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("docs/bench").join(name)).unwrap();
        let table = read("run-path.md");
        assert!(table.contains("on a machine by"), "{table}");
        assert!(table.contains("| a | 9.0 | 2.000 | 4.000 | 0.50 | 1.000 | 2.00 |"), "{table}");
        assert!(table.contains("| b | 9.0 | 2.000 | 2.000 | 1.00 | - | - |"), "{table}");
        let plot = read("run-path.svg");
        assert!(
            plot.contains("a / mlx-safe") && plot.contains("2.00") && plot.contains("b / ORT CPU"),
            "{plot}"
        );
    }

    #[test]
    fn no_rows_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let rows = folder.path().join(FILE);
        fs::write(&rows, "").unwrap();
        assert!(save(&Layout::at(folder.path()), "x", &rows, "m").is_err());
    }
}
