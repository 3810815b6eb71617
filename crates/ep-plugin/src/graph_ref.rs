//! Typed views of ONNX Runtime's graph, alive for the call that received it.

use std::marker::PhantomData;
use std::ptr::null;

use onnx_graph::{Dim, Shape, TensorType, ValueType};
use ort_sys::{ONNXType, OrtGraph, OrtNode, OrtTensorTypeAndShapeInfo, OrtTypeInfo, OrtValueInfo};

use crate::api::{Api, ort, text};
use crate::attribute_ref::AttributeRef;
use crate::element;
use crate::error::Error;
use crate::tensor_ref::TensorRef;

/// Declares a view over one kind of object.
macro_rules! view {
    ($(#[$doc:meta])* $view:ident of $object:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $view<'a> {
            api: Api,
            raw: *const $object,
            call: PhantomData<&'a $object>,
        }

        impl<'a> $view<'a> {
            /// # Safety
            /// `raw` must be live and unchanged during `'a`.
            pub unsafe fn new(api: Api, raw: *const $object) -> Self {
                Self { api, raw, call: PhantomData }
            }
        }
    };
}

view! {
    /// A graph, or the body of a control flow node.
    GraphRef of OrtGraph
}
view! {
    /// A node.
    NodeRef of OrtNode
}
view! {
    /// A value: its name, type, and contents if it is constant.
    ValueRef of OrtValueInfo
}

/// Views of one kind of an object's parts, by the call that counts them and the call that gives them; `None` for a null
/// pointer, which stands for one left out.
macro_rules! parts {
    ($self:ident, $view:ident, $count:ident, $list:ident) => {{
        let (api, raw) = ($self.api, $self.raw);
        // SAFETY: the object is live during `'a`, and so are its parts; both calls set their out-parameters.
        let parts: Vec<Option<$view<'a>>> = unsafe {
            let count = api.get(|out| ort!(api, $count(raw, out)))?;
            let parts: Vec<*const _> = api.list(count, |out, len| ort!(api, $list(raw, out, len)))?;
            parts.into_iter().map(|part| (!part.is_null()).then(|| $view::new(api, part))).collect()
        };
        parts
    }};
}

/// One property of an object.
macro_rules! property {
    ($self:ident, $call:ident) => {{
        let (api, raw) = ($self.api, $self.raw);
        // SAFETY: the object is live during `'a`; the call sets its out-parameter.
        unsafe { api.get(|out| ort!(api, $call(raw, out))) }
    }};
}

impl<'a> GraphRef<'a> {
    /// Its name.
    pub fn name(self) -> Result<&'a str, Error> {
        let name = property!(self, Graph_GetName)?;
        // SAFETY: the name lives as long as the graph.
        unsafe { text(name) }
    }

    /// Its inputs, initializers that are listed there included.
    pub fn inputs(self) -> Result<Vec<ValueRef<'a>>, Error> {
        Ok(parts!(self, ValueRef, Graph_GetNumInputs, Graph_GetInputs).into_iter().flatten().collect())
    }

    /// Its outputs.
    pub fn outputs(self) -> Result<Vec<ValueRef<'a>>, Error> {
        Ok(parts!(self, ValueRef, Graph_GetNumOutputs, Graph_GetOutputs).into_iter().flatten().collect())
    }

    /// Its nodes, in topological order.
    pub fn nodes(self) -> Result<Vec<NodeRef<'a>>, Error> {
        Ok(parts!(self, NodeRef, Graph_GetNumNodes, Graph_GetNodes).into_iter().flatten().collect())
    }

    /// The node whose body it is; `None` for the model's main graph.
    pub fn parent(self) -> Result<Option<NodeRef<'a>>, Error> {
        let raw = property!(self, Graph_GetParentNode)?;
        // SAFETY: a body's node lives as long as the body.
        Ok((!raw.is_null()).then(|| unsafe { NodeRef::new(self.api, raw) }))
    }

    /// The imported version of a domain; `None` if it is not imported.
    pub fn opset(self, domain: &str) -> Result<Option<i64>, Error> {
        let (api, raw) = (self.api, self.raw);
        let count = property!(self, Graph_GetNumOperatorSets)?;
        let mut versions = vec![0i64; count];
        // SAFETY: both buffers hold `count` entries; the names live as long as the graph.
        let domains = unsafe {
            api.list(count, |out, len| {
                ort!(api, Graph_GetOperatorSets(raw, out, versions.as_mut_ptr(), len))
            })?
        };
        for (name, version) in domains.into_iter().zip(versions) {
            // SAFETY: as above.
            if unsafe { text(name) }? == domain {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }
}

impl<'a> NodeRef<'a> {
    /// The node itself.
    pub fn raw(self) -> *const OrtNode {
        self.raw
    }

    /// Its name; often empty.
    pub fn name(self) -> Result<&'a str, Error> {
        let name = property!(self, Node_GetName)?;
        // SAFETY: the name lives as long as the node.
        unsafe { text(name) }
    }

    /// Its operator.
    pub fn op_type(self) -> Result<&'a str, Error> {
        let name = property!(self, Node_GetOperatorType)?;
        // SAFETY: as for the name.
        unsafe { text(name) }
    }

    /// Its operator's domain; empty for ai.onnx.
    pub fn domain(self) -> Result<&'a str, Error> {
        let domain = property!(self, Node_GetDomain)?;
        // SAFETY: as for the name.
        let domain = unsafe { text(domain) }?;
        Ok(if domain == "ai.onnx" { "" } else { domain })
    }

    /// The opset that introduced its operator's schema; less than 1 where there is no schema.
    pub fn since_version(self) -> Result<i64, Error> {
        property!(self, Node_GetSinceVersion).map(i64::from)
    }

    /// Its inputs; `None` for an optional one left out.
    pub fn inputs(self) -> Result<Vec<Option<ValueRef<'a>>>, Error> {
        Ok(parts!(self, ValueRef, Node_GetNumInputs, Node_GetInputs))
    }

    /// Its outputs; `None` for one that is not asked for.
    pub fn outputs(self) -> Result<Vec<Option<ValueRef<'a>>>, Error> {
        Ok(parts!(self, ValueRef, Node_GetNumOutputs, Node_GetOutputs))
    }

    /// Values of outer scopes that its bodies read.
    pub fn implicit_inputs(self) -> Result<Vec<ValueRef<'a>>, Error> {
        let inputs = parts!(self, ValueRef, Node_GetNumImplicitInputs, Node_GetImplicitInputs);
        Ok(inputs.into_iter().flatten().collect())
    }

    /// Its attributes, bodies left out.
    pub fn attributes(self) -> Result<Vec<AttributeRef<'a>>, Error> {
        let (api, raw) = (self.api, self.raw);
        // SAFETY: the node is live during `'a`, and so are its attributes.
        unsafe {
            let count = api.get(|out| ort!(api, Node_GetNumAttributes(raw, out)))?;
            let list = api.list(count, |out, len| ort!(api, Node_GetAttributes(raw, out, len)))?;
            Ok(list.into_iter().map(|raw| AttributeRef::new(api, raw)).collect())
        }
    }

    /// Its bodies, by attribute name.
    pub fn bodies(self) -> Result<Vec<(&'a str, GraphRef<'a>)>, Error> {
        let (api, raw) = (self.api, self.raw);
        let count = property!(self, Node_GetNumSubgraphs)?;
        let mut names = vec![null(); count];
        // SAFETY: both buffers hold `count` entries; bodies and names live as long as the node.
        unsafe {
            let bodies =
                api.list(count, |out, len| ort!(api, Node_GetSubgraphs(raw, out, len, names.as_mut_ptr())))?;
            let bodies = bodies.into_iter().map(|body| GraphRef::new(api, body));
            names.into_iter().zip(bodies).map(|(name, body)| Ok((text(name)?, body))).collect()
        }
    }

    /// The graph that holds it.
    pub fn graph(self) -> Result<Option<GraphRef<'a>>, Error> {
        let raw = property!(self, Node_GetGraph)?;
        // SAFETY: the graph of a live node is live.
        Ok((!raw.is_null()).then(|| unsafe { GraphRef::new(self.api, raw) }))
    }
}

impl<'a> ValueRef<'a> {
    /// Its name.
    pub fn name(self) -> Result<&'a str, Error> {
        let name = property!(self, GetValueInfoName)?;
        // SAFETY: the name lives as long as the value.
        unsafe { text(name) }
    }

    /// Whether it is an initializer, of this or of an outer scope, that no caller may override.
    pub fn is_constant(self) -> Result<bool, Error> {
        property!(self, ValueInfo_IsConstantInitializer)
    }

    /// The contents of an initializer; `None` for strings and for element types that we do not know.
    pub fn contents(self) -> Result<Option<TensorRef<'a>>, Error> {
        let value = property!(self, ValueInfo_GetInitializerValue)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: an initializer is in host memory, lives as long as the graph, and is never written to.
        unsafe { TensorRef::read(self.api, value) }
    }

    /// Its declared type.
    pub fn value_type(self) -> Result<ValueType, Error> {
        let info = property!(self, GetValueInfoTypeInfo)?;
        // SAFETY: the type belongs to the live value.
        unsafe { value_type(self.api, info) }
    }
}

/// A declared type; null is none.
///
/// # Safety
/// `info` must be null or live.
pub unsafe fn value_type(api: Api, info: *const OrtTypeInfo) -> Result<ValueType, Error> {
    if info.is_null() {
        return Ok(ValueType::Unknown);
    }
    // SAFETY: the type is live; an enum is read as the integer it is.
    let kind: i32 = unsafe { api.get(|out: *mut i32| ort!(api, GetOnnxTypeFromTypeInfo(info, out.cast())))? };
    let others = [
        (ONNXType::ONNX_TYPE_SEQUENCE, "sequence"),
        (ONNXType::ONNX_TYPE_MAP, "map"),
        (ONNXType::ONNX_TYPE_OPAQUE, "opaque"),
        (ONNXType::ONNX_TYPE_SPARSETENSOR, "sparse tensor"),
        (ONNXType::ONNX_TYPE_OPTIONAL, "optional"),
    ];
    if let Some((_, name)) = others.into_iter().find(|&(known, _)| known as i32 == kind) {
        return Ok(ValueType::Other(name.to_owned()));
    }
    if kind != ONNXType::ONNX_TYPE_TENSOR as i32 {
        return Ok(ValueType::Unknown);
    }
    // SAFETY: as above; the tensor's part belongs to it.
    let tensor = unsafe { api.get(|out| ort!(api, CastTypeInfoToTensorInfo(info, out)))? };
    // SAFETY: the tensor's part of a live type.
    unsafe { tensor_type(api, tensor) }
}

/// The tensor's part of a declared type.
///
/// # Safety
/// `info` must be live.
pub unsafe fn tensor_type(api: Api, info: *const OrtTensorTypeAndShapeInfo) -> Result<ValueType, Error> {
    // SAFETY: `info` is live; the enum is read as the integer it is; both buffers hold `rank` entries.
    let (number, shape) = unsafe {
        let number: i32 = api.get(|out: *mut i32| ort!(api, GetTensorElementType(info, out.cast())))?;
        let shape = if ort!(api, TensorTypeAndShape_HasShape(info)) {
            let rank = api.get(|out| ort!(api, GetDimensionsCount(info, out)))?;
            let sizes: Vec<i64> = api.list(rank, |out, len| ort!(api, GetDimensions(info, out, len)))?;
            let names = api.list(rank, |out, len| ort!(api, GetSymbolicDimensions(info, out, len)))?;
            let dims = sizes.into_iter().zip(names).map(|(size, name)| Ok(dim(size, text(name)?)));
            Some(Shape(dims.collect::<Result<_, Error>>()?))
        } else {
            None
        };
        (number, shape)
    };
    Ok(match element::from_ort(number) {
        Some(element) => ValueType::Tensor(TensorType { element, shape }),
        None => ValueType::Other(format!("tensor of element type {number}")),
    })
}

/// ONNX Runtime writes -1 for a size that is not declared, and an empty name for one without.
fn dim(size: i64, name: &str) -> Dim {
    match (usize::try_from(size), name) {
        (Ok(size), _) => Dim::Known(size),
        (Err(_), "") => Dim::Unknown,
        (Err(_), name) => Dim::Symbol(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_keep_their_symbols() {
        assert_eq!(dim(0, ""), Dim::Known(0));
        assert_eq!(dim(-1, "batch"), Dim::Symbol("batch".into()));
        assert_eq!(dim(-1, ""), Dim::Unknown);
    }
}
