//! ONNX Runtime's plugin EP structs, as its C headers lay them out. Tables that we fill are complete up to
//! [`NEWEST`]; the one that we call through ends with the last member used. C names are kept.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_void};

use ort_sys::{
    OrtAllocator, OrtCustomOpDomain, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext,
    OrtKeyValuePairs, OrtLogger, OrtMemoryInfo, OrtNode, OrtSessionOptions, OrtStatusPtr, OrtSyncStream,
    OrtValue,
};

/// The oldest minor version of ONNX Runtime 1.x whose plugin interface has all that we need.
pub const OLDEST: u32 = 24;
/// The minor version whose tables stand here in full.
pub const NEWEST: u32 = 28;
/// The first runtime that feeds a fused node what the bodies of its nodes read from outside.
pub const FEEDS_BODIES: u32 = 27;

/// A member that stays null or uncalled: only its place counts.
pub type Unused = Option<unsafe extern "system" fn()>;

/// Collects what an EP claims of a graph.
#[repr(C)]
pub struct OrtEpGraphSupportInfo {
    _opaque: [u8; 0],
}

/// What ONNX Runtime tells of a fused node when its state is made.
#[repr(C)]
pub struct OrtNodeComputeContext {
    _opaque: [u8; 0],
}

/// A device and which of its memories.
#[repr(C)]
pub struct OrtMemoryDevice {
    _opaque: [u8; 0],
}

/// `OrtAllocator` in full: ort-sys leaves out what its features do not name.
#[repr(C)]
#[derive(Default)]
pub struct AllocatorTable {
    pub version: u32,
    pub Alloc: Option<unsafe extern "system" fn(*mut AllocatorTable, size: usize) -> *mut c_void>,
    pub Free: Option<unsafe extern "system" fn(*mut AllocatorTable, *mut c_void)>,
    pub Info: Option<unsafe extern "system" fn(*const AllocatorTable) -> *const OrtMemoryInfo>,
    pub Reserve: Option<unsafe extern "system" fn(*mut AllocatorTable, size: usize) -> *mut c_void>,
    pub GetStats: Unused,
    pub AllocOnStream: Unused,
    pub Shrink: Unused,
}

/// Copies tensors between devices.
#[repr(C)]
#[derive(Default)]
pub struct OrtDataTransferImpl {
    pub ort_version_supported: u32,
    pub Release: Option<unsafe extern "system" fn(*mut OrtDataTransferImpl)>,
    pub CanCopy: Option<
        unsafe extern "system" fn(
            *const OrtDataTransferImpl,
            from: *const OrtMemoryDevice,
            to: *const OrtMemoryDevice,
        ) -> bool,
    >,
    pub CopyTensors: Option<
        unsafe extern "system" fn(
            *mut OrtDataTransferImpl,
            from: *mut *const OrtValue,
            to: *mut *mut OrtValue,
            streams: *mut *mut OrtSyncStream,
            num_tensors: usize,
        ) -> OrtStatusPtr,
    >,
}

/// Makes EPs and says which devices they run on.
#[repr(C)]
#[derive(Default)]
pub struct OrtEpFactory {
    pub ort_version_supported: u32,
    pub GetName: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub GetVendor: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub GetSupportedDevices: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            devices: *const *const OrtHardwareDevice,
            num_devices: usize,
            ep_devices: *mut *mut OrtEpDevice,
            max_ep_devices: usize,
            num_ep_devices: *mut usize,
        ) -> OrtStatusPtr,
    >,
    pub CreateEp: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            devices: *const *const OrtHardwareDevice,
            ep_metadata_pairs: *const *const OrtKeyValuePairs,
            num_devices: usize,
            session_options: *const OrtSessionOptions,
            logger: *const OrtLogger,
            ep: *mut *mut OrtEp,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseEp: Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtEp)>,
    pub GetVendorId: Option<unsafe extern "system" fn(*const OrtEpFactory) -> u32>,
    pub GetVersion: Option<unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char>,
    pub ValidateCompiledModelCompatibilityInfo: Unused,
    pub CreateAllocator: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            *const OrtMemoryInfo,
            options: *const OrtKeyValuePairs,
            *mut *mut OrtAllocator,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseAllocator: Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtAllocator)>,
    pub CreateDataTransfer:
        Option<unsafe extern "system" fn(*mut OrtEpFactory, *mut *mut OrtDataTransferImpl) -> OrtStatusPtr>,
    pub IsStreamAware: Unused,
    pub CreateSyncStreamForDevice: Unused,
    pub GetHardwareDeviceIncompatibilityDetails: Unused,
    pub CreateExternalResourceImporterForDevice: Unused,
    pub GetNumCustomOpDomains:
        Option<unsafe extern "system" fn(*mut OrtEpFactory, num_domains: *mut usize) -> OrtStatusPtr>,
    pub GetCustomOpDomains: Option<
        unsafe extern "system" fn(
            *mut OrtEpFactory,
            domains: *mut *mut OrtCustomOpDomain,
            num_domains: usize,
        ) -> OrtStatusPtr,
    >,
    pub InitGraphicsInterop: Unused,
    pub DeinitGraphicsInterop: Unused,
    pub SelectBestModelCandidate: Unused,
}

/// An execution provider of one session.
#[repr(C)]
#[derive(Default)]
pub struct OrtEp {
    pub ort_version_supported: u32,
    pub GetName: Option<unsafe extern "system" fn(*const OrtEp) -> *const c_char>,
    pub GetCapability: Option<
        unsafe extern "system" fn(*mut OrtEp, *const OrtGraph, *mut OrtEpGraphSupportInfo) -> OrtStatusPtr,
    >,
    pub Compile: Option<
        unsafe extern "system" fn(
            *mut OrtEp,
            graphs: *mut *const OrtGraph,
            fused_nodes: *mut *const OrtNode,
            count: usize,
            node_compute_infos: *mut *mut OrtNodeComputeInfo,
            ep_context_nodes: *mut *mut OrtNode,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseNodeComputeInfos:
        Option<unsafe extern "system" fn(*mut OrtEp, *mut *mut OrtNodeComputeInfo, usize)>,
    pub GetPreferredDataLayout: Unused,
    pub ShouldConvertDataLayoutForOp: Unused,
    pub SetDynamicOptions: Unused,
    pub OnRunStart: Unused,
    pub OnRunEnd: Unused,
    pub CreateAllocator: Unused,
    pub CreateSyncStreamForDevice: Unused,
    pub GetCompiledModelCompatibilityInfo: Unused,
    pub GetKernelRegistry: Unused,
    pub IsConcurrentRunSupported: Option<unsafe extern "system" fn(*mut OrtEp, *mut bool) -> OrtStatusPtr>,
    pub Sync: Unused,
    pub CreateProfiler: Unused,
    pub IsGraphCaptureEnabled: Unused,
    pub IsGraphCaptured: Unused,
    pub ReplayGraph: Unused,
    pub GetGraphCaptureNodeAssignmentPolicy: Unused,
    pub GetAvailableResource: Unused,
    pub OnSessionInitializationEnd: Unused,
    pub GetDefaultMemoryDevice: Unused,
    pub ReleaseCapturedGraph: Unused,
}

/// Runs one fused node.
#[repr(C)]
#[derive(Default)]
pub struct OrtNodeComputeInfo {
    pub ort_version_supported: u32,
    pub CreateState: Option<
        unsafe extern "system" fn(
            *mut OrtNodeComputeInfo,
            *mut OrtNodeComputeContext,
            state: *mut *mut c_void,
        ) -> OrtStatusPtr,
    >,
    pub Compute: Option<
        unsafe extern "system" fn(
            *mut OrtNodeComputeInfo,
            state: *mut c_void,
            *mut OrtKernelContext,
        ) -> OrtStatusPtr,
    >,
    pub ReleaseState: Option<unsafe extern "system" fn(*mut OrtNodeComputeInfo, state: *mut c_void)>,
}

/// How nodes are fused.
#[repr(C)]
pub struct OrtNodeFusionOptions {
    pub ort_version_supported: u32,
    pub drop_constant_initializers: bool,
}

/// The part of ONNX Runtime's API that is for EPs.
#[repr(C)]
pub struct OrtEpApi {
    pub CreateEpDevice: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const OrtHardwareDevice,
        ep_metadata: *const OrtKeyValuePairs,
        ep_options: *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub ReleaseEpDevice: unsafe extern "system" fn(*mut OrtEpDevice),
    pub EpGraphSupportInfo_AddNodesToFuse: unsafe extern "system" fn(
        *mut OrtEpGraphSupportInfo,
        nodes: *const *const OrtNode,
        num_nodes: usize,
        *const OrtNodeFusionOptions,
    ) -> OrtStatusPtr,
    pub EpGraphSupportInfo_AddSingleNode: Unused,
    pub NodeComputeContext_NodeName: Unused,
    pub EpDevice_AddAllocatorInfo:
        unsafe extern "system" fn(*mut OrtEpDevice, *const OrtMemoryInfo) -> OrtStatusPtr,
    pub MemoryInfo_GetMemoryDevice: unsafe extern "system" fn(*const OrtMemoryInfo) -> *const OrtMemoryDevice,
    pub Value_GetMemoryDevice: Unused,
    pub MemoryDevice_AreEqual:
        unsafe extern "system" fn(*const OrtMemoryDevice, *const OrtMemoryDevice) -> bool,
    /// An `OrtMemoryInfoDeviceType`, whatever a newer runtime puts there.
    pub MemoryDevice_GetDeviceType: unsafe extern "system" fn(*const OrtMemoryDevice) -> i32,
}

/// Holds the structs against the member numbers of the C headers; a version number takes a whole place.
macro_rules! slots {
    ($($table:ident { $($member:ident = $slot:literal),+ $(,)? })+) => {
        const _: () = { $($(
            assert!(std::mem::offset_of!($table, $member) == $slot * size_of::<usize>());
        )+)+ };
    };
}

slots! {
    OrtEpFactory {
        ort_version_supported = 0, GetName = 1, GetVendor = 2, GetSupportedDevices = 3, CreateEp = 4,
        ReleaseEp = 5, GetVendorId = 6, GetVersion = 7, ValidateCompiledModelCompatibilityInfo = 8,
        CreateAllocator = 9, ReleaseAllocator = 10, CreateDataTransfer = 11, IsStreamAware = 12,
        CreateSyncStreamForDevice = 13, GetHardwareDeviceIncompatibilityDetails = 14,
        CreateExternalResourceImporterForDevice = 15, GetNumCustomOpDomains = 16, GetCustomOpDomains = 17,
        InitGraphicsInterop = 18, DeinitGraphicsInterop = 19, SelectBestModelCandidate = 20,
    }
    OrtEp {
        ort_version_supported = 0, GetName = 1, GetCapability = 2, Compile = 3, ReleaseNodeComputeInfos = 4,
        GetPreferredDataLayout = 5, ShouldConvertDataLayoutForOp = 6, SetDynamicOptions = 7, OnRunStart = 8,
        OnRunEnd = 9, CreateAllocator = 10, CreateSyncStreamForDevice = 11,
        GetCompiledModelCompatibilityInfo = 12, GetKernelRegistry = 13, IsConcurrentRunSupported = 14,
        Sync = 15, CreateProfiler = 16, IsGraphCaptureEnabled = 17, IsGraphCaptured = 18, ReplayGraph = 19,
        GetGraphCaptureNodeAssignmentPolicy = 20, GetAvailableResource = 21, OnSessionInitializationEnd = 22,
        GetDefaultMemoryDevice = 23, ReleaseCapturedGraph = 24,
    }
    OrtNodeComputeInfo { ort_version_supported = 0, CreateState = 1, Compute = 2, ReleaseState = 3 }
    AllocatorTable {
        version = 0, Alloc = 1, Free = 2, Info = 3, Reserve = 4, GetStats = 5, AllocOnStream = 6, Shrink = 7,
    }
    OrtDataTransferImpl { ort_version_supported = 0, Release = 1, CanCopy = 2, CopyTensors = 3 }
    OrtEpApi {
        CreateEpDevice = 0, ReleaseEpDevice = 1, EpGraphSupportInfo_AddNodesToFuse = 2,
        EpGraphSupportInfo_AddSingleNode = 3, NodeComputeContext_NodeName = 4, EpDevice_AddAllocatorInfo = 5,
        MemoryInfo_GetMemoryDevice = 6, Value_GetMemoryDevice = 7, MemoryDevice_AreEqual = 8,
        MemoryDevice_GetDeviceType = 9,
    }
}

// These two fields share the first word.
const _: () = assert!(std::mem::offset_of!(OrtNodeFusionOptions, drop_constant_initializers) == 4);

#[cfg(test)]
mod tests {
    use super::*;

    /// ONNX Runtime reads each table up to the last member of the version that it is told.
    #[test]
    fn tables_hold_every_member_of_the_newest_version() {
        assert_eq!(size_of::<OrtEpFactory>(), 21 * size_of::<usize>());
        assert_eq!(size_of::<OrtEp>(), 25 * size_of::<usize>());
        assert_eq!(size_of::<OrtNodeComputeInfo>(), 4 * size_of::<usize>());
        assert_eq!(size_of::<OrtNodeFusionOptions>(), 8);
        assert_eq!(size_of::<OrtDataTransferImpl>(), 4 * size_of::<usize>());
    }

    #[test]
    fn a_default_table_is_null_all_over() {
        let ep = OrtEp::default();
        assert!(ep.Compile.is_none() && ep.ReleaseCapturedGraph.is_none());
    }
}
