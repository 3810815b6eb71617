//! `threadgroup` in front of a variable means memory that a threadgroup shares; in front of what a pointer points to it says
//! only where that lies.

/// `text`, preprocessed C++, with the variables' `threadgroup` replaced by the runtime's macro and the others' taken away.
pub(crate) fn rewrite(text: &str) -> String {
    const WORD: &str = "threadgroup";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(WORD) {
        let (before, after) = (&rest[..at], &rest[at + WORD.len()..]);
        out.push_str(before);
        let inside = before.ends_with(identifier) || after.starts_with(identifier);
        if inside {
            out.push_str(WORD);
        } else if is_variable(after) {
            out.push_str("METAL_HOST_THREADGROUP");
        }
        rest = after;
    }
    out + rest
}

fn identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a declaration that goes on like this is of a variable: its array bounds or its end come before any `*`, `&`.
fn is_variable(declaration: &str) -> bool {
    let mut depth = 0;
    for c in declaration.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '*' | '&' | '(' | ')' if depth == 0 => return false,
            '[' | ';' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn variables_are_shared_and_pointers_are_not() {
        for (text, wanted) in [
            ("threadgroup float tile[32];", "METAL_HOST_THREADGROUP float tile[32];"),
            ("threadgroup float a[2], b[3];", "METAL_HOST_THREADGROUP float a[2], b[3];"),
            ("threadgroup uint count;", "METAL_HOST_THREADGROUP uint count;"),
            ("threadgroup array<float, N * 2> a;", "METAL_HOST_THREADGROUP array<float, N * 2> a;"),
            ("threadgroup float* p = tile;", " float* p = tile;"),
            ("f(threadgroup const float (&t)[4])", "f( const float (&t)[4])"),
            ("(threadgroup float4*)p", "( float4*)p"),
            (
                "threadgroup_barrier(mem_flags::mem_threadgroup);",
                "threadgroup_barrier(mem_flags::mem_threadgroup);",
            ),
            ("threads_per_threadgroup.x;", "threads_per_threadgroup.x;"),
        ] {
            assert_eq!(rewrite(text), wanted);
        }
    }
}
