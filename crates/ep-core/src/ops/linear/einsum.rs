//! `Einsum` (ai.onnx 12+) as MLX's einsum. An ellipsis becomes letters and a missing output list is written out first,
//! since MLX knows neither.

use mlx_safe::{Array, einsum, zeros};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The equation, without spaces.
pub(crate) struct Einsum {
    inputs: Vec<String>,
    output: Option<String>,
}

const ELLIPSIS: &str = "...";

impl Op for Einsum {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Einsum")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let equation: String = node.string_or("equation", "")?.chars().filter(|c| *c != ' ').collect();
        let (inputs, output) = match equation.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output.to_owned())),
            None => (equation.as_str(), None),
        };
        let inputs: Vec<String> = inputs.split(',').map(str::to_owned).collect();
        for term in inputs.iter().chain(&output) {
            let letters = term.replacen(ELLIPSIS, "", 1);
            if !letters.chars().all(|c| c.is_ascii_alphabetic()) {
                return Err(Decline::invalid(format!("'{term}' is not a list of letters")));
            }
        }
        if inputs.len() != node.input_count() {
            return Err(Decline::invalid("the equation has another number of operands"));
        }
        if output.as_deref().is_some_and(repeats) {
            return Err(Decline::invalid("a letter twice in the output"));
        }
        Ok(Self { inputs, output })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the order of contraction depends on the sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let operands = cx.arrays()?;
        let ranks: Vec<usize> = operands.iter().map(Array::ndim).collect();
        let (inputs, output) = self.explicit(&ranks)?;
        let mut sizes = std::collections::HashMap::new();
        for (term, operand) in inputs.iter().zip(&operands) {
            for (letter, &size) in term.chars().zip(operand.shape()) {
                let known = sizes.entry(letter).or_insert(size);
                if *known == 1 {
                    *known = size;
                } else if size != *known && size != 1 {
                    return Err(LowerError::invalid(format!("'{letter}' is both {known} and {size}")));
                }
            }
        }
        let size = |letter: char| sizes.get(&letter).copied();
        let shape: Option<Vec<i32>> = output.chars().map(size).collect();
        let shape =
            shape.ok_or_else(|| LowerError::invalid("the output has a letter that no operand has"))?;
        if operands.iter().any(|x| x.size() == 0) {
            return cx.emit(0, zeros(&shape, operands[0].dtype())?);
        }
        let y = einsum(&format!("{}->{output}", inputs.join(",")), &operands)?;
        cx.emit(0, y)
    }
}

impl Einsum {
    /// The terms in letters alone, for operands of these ranks.
    fn explicit(&self, ranks: &[usize]) -> Result<(Vec<String>, String), LowerError> {
        let all: String = self.inputs.concat();
        let free: Vec<char> = ('a'..='z').chain('A'..='Z').filter(|c| !all.contains(*c)).collect();
        let mut widest = 0;
        let mut widths = Vec::new();
        for (term, &rank) in self.inputs.iter().zip(ranks) {
            let has = term.contains(ELLIPSIS);
            let named = term.len() - if has { ELLIPSIS.len() } else { 0 };
            let fits = if has { named <= rank } else { named == rank };
            if !fits {
                return Err(LowerError::invalid(format!("'{term}' does not fit an operand of rank {rank}")));
            }
            let width = rank - named;
            if has && width != 0 && widest != 0 && width != widest {
                return Err(LowerError::invalid(format!("'...' stands for {widest} axes and for {width}")));
            }
            widths.push(width);
            widest = widest.max(width);
        }
        let batch = free.get(..widest).ok_or_else(|| LowerError::invalid("too many axes for the letters"))?;
        // Broadcasting aligns at the end.
        let expand = |term: &str, width: usize| {
            term.replacen(ELLIPSIS, &batch[widest - width..].iter().collect::<String>(), 1)
        };
        let inputs = self.inputs.iter().zip(&widths).map(|(term, &width)| expand(term, width)).collect();
        let output = match &self.output {
            Some(output) => expand(output, widest),
            None => {
                let mut once: Vec<char> =
                    all.chars().filter(|&c| c != '.' && all.matches(c).count() == 1).collect();
                once.sort_unstable();
                batch.iter().chain(&once).collect()
            }
        };
        Ok((inputs, output))
    }
}

fn repeats(term: &str) -> bool {
    term.char_indices().any(|(i, c)| c != '.' && term[i + 1..].contains(c))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn of(equation: &'static str) -> Case {
        case("Einsum", 12).attr("equation", equation)
    }

    op_cases! {
        matmul: of("ij,jk->ik").x(f32s([3, 4])).x(f32s([4, 5])) => close(tol::F32_SUM);
        spaces_and_no_output: of("ij , jk").x(f32s([3, 4])).x(f32s([4, 5])) => close(tol::F32_SUM);
        attention_scores: of("bhqd,bhkd->bhqk").x(f32s([2, 3, 4, 5])).x(f32s([2, 3, 6, 5])) => close(tol::F32_SUM);
        transpose: of("ij->ji").x(f32s([3, 4])) => exact();
        implied_transpose: of("ba").x(f32s([3, 4])) => exact();
        sum: of("ij->i").x(f32s([3, 4])) => close(tol::F32);
        total: of("ij->").x(f32s([3, 4])) => close(tol::F32_SUM);
        outer: of("i,j->ij").x(f32s([3])).x(f32s([4])) => close(tol::F32);
        dot: of("i,i").x(f32s([4])).x(f32s([4])) => close(tol::F32_SUM);
        three: of("ab,bc,cd->ad").x(f32s([2, 3])).x(f32s([3, 4])).x(f32s([4, 5])) => close(tol::F32_SUM);
        ellipsis: of("...ij,...jk->...ik").x(f32s([2, 3, 4])).x(f32s([2, 4, 5])) => close(tol::F32_SUM);
        ellipsis_broadcast: of("...ij,...jk->...ik").x(f32s([2, 1, 3, 4])).x(f32s([1, 5, 4, 6])) => close(tol::F32_SUM);
        ellipsis_implied: of("...ij,...jk").x(f32s([2, 3, 4])).x(f32s([2, 4, 5])) => close(tol::F32_SUM);
        ellipsis_of_nothing: of("...ij,...jk->...ik").x(f32s([2, 3, 4])).x(f32s([4, 5])).unranked() => close(tol::F32_SUM);
        ellipses_of_different_ranks: of("...ij,...jk->...ik").x(f32s([2, 1, 3, 4])).x(f32s([5, 4, 5])) => fails("'...' stands for");
        ellipsis_last: of("i...->...i").x(f32s([2, 3, 4])) => exact();
        upper_case: of("iJ,Jk->ik").x(f32s([3, 4])).x(f32s([4, 5])) => close(tol::F32_SUM);
        half: of("ij,jk->ik").x(random(E::Float16, [3, 40])).x(random(E::Float16, [40, 5])) => close(tol::F16);
        empty: of("ij,jk->ik").x(f32s([3, 0])).x(f32s([0, 5])) => exact();
        misfit: of("ij,jk->ik").x(f32s([3, 4])).x(f32s([5, 4])) => fails("'j'");
        diagonal: of("ii->i").x(f32s([3, 3])) => exact();
        diagonals_of_batches: of("...ii->...i").x(f32s([2, 3, 3])) => exact();
        scalar: of("->").x(f32s([])) => exact();
        trace: of("ii").x(f32s([3, 3])) => close(tol::F32);
        diagonal_in_a_product: of("iij,jk->ik").x(f32s([3, 3, 4])).x(f32s([4, 5])) => close(tol::F32_SUM);
        integers: of("ij,jk->ik").x(random(E::Int32, [3, 4])).x(random(E::Int32, [4, 5])) => declines();
    }
}
