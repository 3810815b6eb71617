//! Value types on the wire, and the type strings that stand for all but dense tensors: `seq(tensor(float))`,
//! `map(int64,tensor(float))`, `optional(...)`, `sparse_tensor(float)`, `opaque(domain,name)`.

use crate::proto::{
    DimensionProto, ElementTypeProto, MapTypeProto, OpaqueTypeProto, TensorShapeProto, TensorTypeProto,
    TypeProto,
};
use crate::{Dim, ElementType, Shape, TensorType, ValueType};

/// The type that `proto` declares. A size below zero counts as unknown.
pub fn from_proto(proto: &TypeProto) -> ValueType {
    match &proto.tensor_type {
        Some(TensorTypeProto { elem_type: 0, .. }) => ValueType::Unknown,
        Some(tensor) => match ElementType::from_onnx(tensor.elem_type) {
            Some(element) => {
                ValueType::Tensor(TensorType { element, shape: tensor.shape.as_ref().map(shape_from_proto) })
            }
            None => ValueType::Other(describe(proto)),
        },
        None if *proto == TypeProto::default() => ValueType::Unknown,
        None => ValueType::Other(describe(proto)),
    }
}

/// The wire form of `ty`; `None` for unknown types and strings that stand for none.
pub fn to_proto(ty: &ValueType) -> Option<TypeProto> {
    match ty {
        ValueType::Tensor(TensorType { element, shape }) => {
            let shape = shape.as_ref().map(shape_to_proto);
            let tensor_type = Some(TensorTypeProto { elem_type: element.onnx(), shape });
            Some(TypeProto { tensor_type, ..Default::default() })
        }
        ValueType::Other(description) => parse(description),
        ValueType::Unknown => None,
    }
}

fn shape_from_proto(proto: &TensorShapeProto) -> Shape {
    let dim = |d: &DimensionProto| match (d.dim_value, &d.dim_param) {
        (Some(size), _) => usize::try_from(size).map_or(Dim::Unknown, Dim::Known),
        (None, Some(name)) if !name.is_empty() => Dim::Symbol(name.clone()),
        _ => Dim::Unknown,
    };
    Shape(proto.dim.iter().map(dim).collect())
}

fn shape_to_proto(shape: &Shape) -> TensorShapeProto {
    let dim = |d: &Dim| match d {
        Dim::Known(size) => DimensionProto { dim_value: i64::try_from(*size).ok(), dim_param: None },
        Dim::Symbol(name) => DimensionProto { dim_value: None, dim_param: Some(name.clone()) },
        Dim::Unknown => DimensionProto::default(),
    };
    TensorShapeProto { dim: shape.0.iter().map(dim).collect() }
}

fn describe(proto: &TypeProto) -> String {
    let inner = |ty: &Option<TypeProto>| ty.as_ref().map_or("?".to_owned(), describe);
    if let Some(tensor) = &proto.tensor_type {
        format!("tensor({})", element_name(tensor.elem_type))
    } else if let Some(tensor) = &proto.sparse_tensor_type {
        format!("sparse_tensor({})", element_name(tensor.elem_type))
    } else if let Some(sequence) = &proto.sequence_type {
        format!("seq({})", inner(&sequence.elem_type))
    } else if let Some(optional) = &proto.optional_type {
        format!("optional({})", inner(&optional.elem_type))
    } else if let Some(map) = &proto.map_type {
        format!("map({},{})", element_name(map.key_type), inner(&map.value_type))
    } else if let Some(opaque) = &proto.opaque_type {
        format!("opaque({},{})", opaque.domain, opaque.name)
    } else {
        "?".to_owned()
    }
}

fn parse(description: &str) -> Option<TypeProto> {
    let (kind, rest) = description.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    let element = || Some(TensorTypeProto { elem_type: element_number(inner)?, shape: None });
    let nested = || Some(Box::new(ElementTypeProto { elem_type: Some(parse(inner)?) }));
    let mut proto = TypeProto::default();
    match kind {
        "tensor" => proto.tensor_type = Some(element()?),
        "sparse_tensor" => proto.sparse_tensor_type = Some(element()?),
        "seq" => proto.sequence_type = Some(nested()?),
        "optional" => proto.optional_type = Some(nested()?),
        "map" => {
            let (key, value) = inner.split_once(',')?;
            let value_type = Some(parse(value)?);
            proto.map_type = Some(Box::new(MapTypeProto { key_type: element_number(key)?, value_type }));
        }
        "opaque" => {
            let (domain, name) = inner.split_once(',')?;
            proto.opaque_type = Some(OpaqueTypeProto { domain: domain.to_owned(), name: name.to_owned() });
        }
        _ => return None,
    }
    Some(proto)
}

/// The name of an element type; the number itself where it is newer than this crate.
fn element_name(number: i32) -> String {
    ElementType::from_onnx(number).map_or(number.to_string(), |element| element.name().to_owned())
}

fn element_number(name: &str) -> Option<i32> {
    let known = ElementType::ALL.iter().find(|e| e.name() == name);
    known.map(|e| e.onnx()).or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_types_survive_as_strings() {
        for description in [
            "seq(tensor(float))",
            "optional(seq(tensor(string)))",
            "map(int64,map(string,tensor(double)))",
            "sparse_tensor(float16)",
            "opaque(com.example,Thing)",
            "tensor(27)",
        ] {
            let ty = ValueType::Other(description.to_owned());
            assert_eq!(from_proto(&to_proto(&ty).unwrap()), ty);
        }
        for nonsense in ["", "seq", "seq(", "seq(tensor(no))", "map(int64)", "wombat(float)"] {
            assert!(to_proto(&ValueType::Other(nonsense.to_owned())).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn tensors_keep_every_kind_of_dimension() {
        let shape = Shape(vec![3.into(), "N".into(), Dim::Unknown, 0.into()]);
        for shape in [Some(shape), Some(Shape::default()), None] {
            let ty = ValueType::Tensor(TensorType { element: ElementType::Int4, shape });
            assert_eq!(from_proto(&to_proto(&ty).unwrap()), ty);
        }
    }

    #[test]
    fn negative_sizes_and_empty_names_are_unknown() {
        let dims = [
            DimensionProto { dim_value: Some(-1), dim_param: None },
            DimensionProto { dim_value: None, dim_param: Some(String::new()) },
        ];
        let proto = TensorShapeProto { dim: dims.to_vec() };
        assert_eq!(shape_from_proto(&proto).0, [Dim::Unknown, Dim::Unknown]);
        assert_eq!(from_proto(&TypeProto::default()), ValueType::Unknown);
    }
}
