//! Nothing: the manifest beside this file only locks a source archive.
