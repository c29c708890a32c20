/* The card as each framework is to see it, and what each stand-in is compiled with: -DFOR_TORCH, and so on. */
#pragma once

#ifndef FOR_TORCH
#define FOR_TORCH 0
#endif
#ifndef FOR_MXNET
#define FOR_MXNET 0
#endif
#ifndef FOR_TENSORFLOW
#define FOR_TENSORFLOW 0
#endif

#if FOR_MXNET /* its wheels hold code up to compute capability 8 */
#define CARD_NAME "a simulated GPU"
#define CARD_BYTES (80ll << 30)
#define CARD_CONTEXT_BYTES 0
#define CARD_CAPABILITY 80
#define CARD_MULTIPROCESSORS 108
#define PAGE_BYTES 512 /* in which the driver hands memory out */
#else
#define CARD_NAME "NVIDIA H200"
#define CARD_BYTES 150754820096
#define CARD_CONTEXT_BYTES (512ll << 20)
#define CARD_CAPABILITY 90
#define CARD_MULTIPROCESSORS 132
#define PAGE_BYTES (FOR_TORCH ? 2 << 20 : 1)
#endif

#define CARD_LIBRARY_BYTES (FOR_TORCH ? 96ll << 20 : 0) /* of cuBLAS */
#define CARD_CUDA (FOR_TENSORFLOW ? 12050 : 13000)
#define CARD_BUS 0x1b
#define CARD_SHARED_BYTES (48 << 10) /* of a block */
#define CARD_SHARED_MOST_BYTES (227 << 10) /* of a block that asks for it */
#define CARD_SHARED_ALL_BYTES (228 << 10) /* of a multiprocessor */
#define CARD_REGISTERS 65536
#define CARD_L2_BYTES (60 << 20)
#define CARD_BUS_BITS 6144
#define CARD_CLOCK_KHZ 1980000
#define CARD_MEMORY_CLOCK_KHZ 3201000
