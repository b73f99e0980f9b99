// The functions of cuDNN that convolutions use, and owners of its objects.
#pragma once
#include <cudnn.h>

#include "tensor/cuda/library.h"

// clang-format off
#define PERIGEE_CUDNN_FUNCTIONS(F) \
  F(cudnnGetVersion) F(cudnnGetErrorString) F(cudnnCreate) F(cudnnDestroy) F(cudnnSetStream) \
  F(cudnnCreateTensorDescriptor) F(cudnnDestroyTensorDescriptor) F(cudnnSetTensorNdDescriptor) \
  F(cudnnCreateFilterDescriptor) F(cudnnDestroyFilterDescriptor) F(cudnnSetFilterNdDescriptor) \
  F(cudnnCreateConvolutionDescriptor) F(cudnnDestroyConvolutionDescriptor) F(cudnnSetConvolutionNdDescriptor) \
  F(cudnnSetConvolutionGroupCount) F(cudnnSetConvolutionMathType) F(cudnnGetConvolutionForwardAlgorithm_v7) \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7) F(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  F(cudnnGetConvolutionForwardWorkspaceSize) F(cudnnGetConvolutionBackwardDataWorkspaceSize) \
  F(cudnnGetConvolutionBackwardFilterWorkspaceSize) F(cudnnConvolutionForward) \
  F(cudnnConvolutionBackwardData) F(cudnnConvolutionBackwardFilter)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(Cudnn, PERIGEE_CUDNN_FUNCTIONS, check_cudnn)

// Opens the library at the first call. A failed try is repeated by the next call.
const Cudnn& cudnn();

// An object of cuDNN. `make` and `end` are members of Cudnn.
template <class T, auto make, auto end>
class CudnnObject {
 public:
  CudnnObject() { (cudnn().*make)(&object_); }
  ~CudnnObject() { (cudnn().*end).status(object_); }
  CudnnObject(const CudnnObject&) = delete;
  T get() const { return object_; }

 private:
  T object_ = nullptr;
};
using CudnnHandle = CudnnObject<cudnnHandle_t, &Cudnn::cudnnCreate, &Cudnn::cudnnDestroy>;
using TensorDescriptor =
    CudnnObject<cudnnTensorDescriptor_t, &Cudnn::cudnnCreateTensorDescriptor, &Cudnn::cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    CudnnObject<cudnnFilterDescriptor_t, &Cudnn::cudnnCreateFilterDescriptor, &Cudnn::cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = CudnnObject<cudnnConvolutionDescriptor_t, &Cudnn::cudnnCreateConvolutionDescriptor,
                                          &Cudnn::cudnnDestroyConvolutionDescriptor>;

}  // namespace pg::cuda
