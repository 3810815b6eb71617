/* What mlx-c lacks and mlx-safe needs. */
#pragma once

#include "mlx/c/mlx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first element of an evaluated array of any type (mlx-c has accessors by type, those for 16-bit floats on aarch64
   only); null for an empty handle or an array that has not been evaluated. */
const void* ortmlx_array_data(mlx_array arr);

/* Whether an evaluated array's elements lie in row-major order without gaps. */
bool ortmlx_array_is_row_contiguous(mlx_array arr);

/* Whether two evaluated arrays lie in the same memory. */
bool ortmlx_array_shares_memory(mlx_array a, mlx_array b);

/* Whether an evaluated array's elements lie where the host cannot reach them but by copying. */
bool ortmlx_array_is_on_device(mlx_array arr);

/* Writes an evaluated array's elements to `to` in row-major order, in one pass however they lie; on a device they must lie in
   that order. */
int ortmlx_array_copy_out(mlx_array arr, void* to);

/* `bytes` of MLX's allocator that the host can use too, aligned for tensors; null if there are none. Any thread may call these. */
void* ortmlx_block_new(size_t bytes);
/* Gives back what ortmlx_block_new returned. */
void ortmlx_block_free(void* data);
/* Whether these bytes lie in one such block. */
bool ortmlx_in_block(const void* data, size_t bytes);

/* Has the device of `s` write an evaluated array's elements to a place in such a block; `written` is false if it cannot. */
int ortmlx_write_to_block(mlx_array arr, void* to, const mlx_stream s, bool* written);

/* An array with a copy of `data`, in the memory of the device of `s`. */
int ortmlx_array_new(
    mlx_array* res,
    const void* data,
    const int* shape,
    size_t ndim,
    mlx_dtype dtype,
    const mlx_stream s);

/* An array over `data`, without a copy where the back end can work on it as it lies (`lent` then), and of a copy elsewhere, as
   ortmlx_array_new makes it. Lent memory must stay as it is until ortmlx_take_back has returned; it is not written while `res`
   is held. */
int ortmlx_lend(
    mlx_array* res,
    void* data,
    const int* shape,
    size_t ndim,
    mlx_dtype dtype,
    const mlx_stream s,
    bool* lent);

/* Ends the loan of the memory of `arr`, which came from ortmlx_lend, on the thread that made it: who else has the array or
   views of it has a copy from then on. Not 0 if there is no memory for one. */
int ortmlx_take_back(mlx_array arr);

/* Call it once, before anything else of MLX's. */
void ortmlx_start(void);

/* As mlx_array_eval, mlx_eval and mlx_async_eval, for graphs that MLX may not survive: arrays without elements are done
   without computing, what is impossible is an error, and a failure leaves the streams as they were. */
int ortmlx_array_eval(mlx_array arr);
int ortmlx_eval(const mlx_vector_array arrays);
int ortmlx_async_eval(const mlx_vector_array arrays);

/* Whether so little of this thread's stack is left that no function should be called any more. */
bool ortmlx_stack_is_short(void);

/* Fails if `outputs`, which a function has made of `inputs`, lie too deep for MLX's transformations, which recurse. */
int ortmlx_check_depth(const mlx_vector_array inputs, const mlx_vector_array outputs);

/* `indices` into the flattened `axes` of `of`, such that `span` elements from each on are there: negative ones count from the
   end, and what is then out of range becomes the nearest that is in it. */
int ortmlx_bounded_indices(
    mlx_array* res,
    const mlx_array indices,
    const mlx_array of,
    const int* axes,
    size_t axes_num,
    int span,
    const mlx_stream s);

/* The same for `start` (axes_num), where slices of `sizes` begin on `axes` of `of`. */
int ortmlx_bounded_starts(
    mlx_array* res,
    const mlx_array start,
    const mlx_array of,
    const int* axes,
    const int* sizes,
    size_t axes_num,
    const mlx_stream s);

/* As mlx_floor_divide and mlx_remainder, for integers of any value: a divisor of 0 gives 0, and the smallest integer divided
   by -1 itself. */
int ortmlx_floor_divide(mlx_array* res, const mlx_array a, const mlx_array b, const mlx_stream s);
int ortmlx_remainder(mlx_array* res, const mlx_array a, const mlx_array b, const mlx_stream s);

/* One input or output of a host op: `size` elements, row-major without gaps. `data` is null while only types and shapes
   are asked about. */
typedef struct ortmlx_view_ {
  void* data;
  const int* shape;
  size_t ndim;
  size_t size;
  mlx_dtype dtype;
} ortmlx_view;

/* Where a callback of a host op leaves its results. */
typedef struct ortmlx_sink_ {
  void* ctx;
} ortmlx_sink;

/* Adds one output's type and shape; not 0 if memory is short. */
int ortmlx_sink_add_output(ortmlx_sink sink, const int* shape, size_t ndim, mlx_dtype dtype);

/* Says why the callback fails. */
void ortmlx_sink_set_message(ortmlx_sink sink, const char* text, size_t length);

/* An operation whose evaluation is a function of the host. The callbacks return 0 for success, never throw, and may be
   called from any thread; `payload` is what they are called with, and `release` is called with it once, at the end, from
   any thread. */
typedef struct ortmlx_host_op_ {
  const char* name;
  void* payload;
  int (*infer)(void* payload, const ortmlx_view* inputs, size_t inputs_num, ortmlx_sink sink);
  int (*run)(
      void* payload,
      const ortmlx_view* inputs,
      size_t inputs_num,
      const ortmlx_view* outputs,
      size_t outputs_num,
      ortmlx_sink sink);
  int (*vjp)(
      void* payload,
      mlx_vector_array* res,
      const mlx_vector_array primals,
      const mlx_vector_array cotangents,
      const mlx_vector_array outputs) /* may be null */;
  void (*release)(void* payload);
  /* The first output begins with the values of the first input, whose shape and type it has, and takes its memory if
     nobody else holds that; `run` does not see the input. */
  bool in_place;
  /* It does not matter how many leading axes the first input and the outputs have: vmap adds one. */
  bool stacks;
} ortmlx_host_op;

/* Adds the operation to the lazy graph, on a stream of the CPU. Takes over `op.payload`, whether it succeeds or not. */
int ortmlx_host_op_apply(
    mlx_vector_array* res,
    const ortmlx_host_op op,
    const mlx_vector_array inputs,
    const mlx_stream s);

/* Whether an array can be computed: not what depends on the inputs of a function while it is traced. */
bool ortmlx_array_has_values(mlx_array arr);

/* An array that stands for another of this shape and type while a graph is recorded. */
int ortmlx_placeholder(mlx_array* res, const int* shape, size_t ndim, mlx_dtype dtype);

/* A graph without its arrays. */
typedef struct ortmlx_recording_ {
  void* ctx;
} ortmlx_recording;

/* What `outputs` are computed by from `inputs`, which are placeholders; keeps neither. What does not depend on placeholders
   and is there already is kept. */
int ortmlx_record(
    ortmlx_recording* res,
    const mlx_vector_array inputs,
    const mlx_vector_array outputs);

/* The same of a function of them, right for inputs of other sizes. It fails where MLX's compiler is not available, and if
   an operation cannot tell the shapes of its outputs. */
int ortmlx_record_shapeless(
    ortmlx_recording* res,
    const mlx_closure function,
    const mlx_vector_array inputs,
    bool fuse);

/* Adds the same operations to the lazy graph, of other inputs of the same shapes (without shapes: of the same ranks) and
   types. */
int ortmlx_recording_replay(
    mlx_vector_array* res,
    const ortmlx_recording recording,
    const mlx_vector_array inputs);

/* The sizes that the dimensions of its constants have, each once: writes up to `room` and returns their number. */
size_t ortmlx_recording_sizes(const ortmlx_recording recording, int* sizes, size_t room);

/* The number of operations, and how many follow one another at most. */
size_t ortmlx_recording_size(const ortmlx_recording recording);
size_t ortmlx_recording_depth(const ortmlx_recording recording);

void ortmlx_recording_free(ortmlx_recording recording);

#ifdef __cplusplus
}
#endif
