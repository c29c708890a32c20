"""The words of the page with their definitions, as in docs/glossary.md; a test compares the two."""

DEFINITIONS = {
    "Activation, feature map": (
        "The output of a layer, kept from the forward pass until the backward pass needs it. Feature map is "
        "the TBD paper's term and the name of the category on screen; it also covers the gradients of "
        "activations, recomputed activations and the mini-batch. (In kernel tables, activation also names "
        "functions such as ReLU.)"
    ),
    "Active time": ("The time in which at least one kernel runs."),
    "Allocator cache": ("Memory that the framework's allocator has reserved on the device and that no tensor uses."),
    "Analytic": ("A level: FLOPs by definition, over active time and peak."),
    "Block of steps": ("Consecutive steps between two waits for the device. Times are taken per block."),
    "Category": (
        "One of the TBD paper's five groups of memory: weights, weight gradients, feature maps, workspace, "
        "dynamic. A category is a sum of roles. Unknown is printed beside them."
    ),
    "Clean window": (
        "A window in which nothing watches the training. Throughput, CPU utilization and energy come from here."
    ),
    "Communication": ("Data exchanged between processes or devices."),
    "Counted": ("A level: exact hardware counts of one step under Nsight Compute (--exact)."),
    "Covered": (
        "The kernels' own times over the time of the step; above 1 where threads or streams overlap. "
        "Elsewhere: the share of time for which a figure is known."
    ),
    "Data wait": ("The time that a training loop waits for its next batch."),
    "Device busy": (
        "Time in which any kernel runs, per step, over the time of a clean step (equation 1 of the TBD paper)."
    ),
    "Drifted": ("The clean windows of a run disagree: its speed changed meanwhile."),
    "Dynamic": (
        "The category of what outlives its operator without being any of the others, above all the optimizer's state."
    ),
    "FLOP": ("One floating-point operation. A multiply-add is two. FLOP/s is FLOPs per second."),
    "FLOP count": (
        "The number of FLOPs an operator computes by its definition, from the shapes it was given. An "
        "operator without one is listed with its time and no utilization."
    ),
    "Headroom": (
        "How many times faster a kernel could become before it reaches the nearer ceiling of the roofline, its limit."
    ),
    "Idle": ("The time in which no kernel runs, by reason."),
    "Independent total": (
        "The framework's own running total of allocated memory, which tbdprof compares with the blocks it saw."
    ),
    "Kernel": ("On a GPU, what the device reported: a kernel, copy or memset. On a CPU, an operator's own time."),
    "Kernels window": ("A window in which operators are recorded, and on a GPU kernels and copies."),
    "Launching": (
        "Time in which the device idles because the next kernel has not been asked for yet. In the verdict, "
        "also the time of kernels so short that asking for them dominates."
    ),
    "Layer": ("A module of the model, by its path: layer1.0.conv1."),
    "Limit": ("The ceiling of the roofline that is nearer to a kernel: compute or memory."),
    "MFU": (
        "Model FLOP utilization: FLOPs of the model's matrix multiplications and convolutions over active "
        "time and peak, in the run's precision. What is computed again does not count."
    ),
    "Memory window": ("A window in which every allocation and free is recorded."),
    "Missing": ("What could not be measured, with the reason."),
    "Operator": ("A function of the framework, such as a convolution, with everything it runs."),
    "Own time": ("The duration of an operator without the operators inside it."),
    "Peak (FLOP/s)": (
        "The most FLOPs per second that the device can do in a precision: measured on a CPU, looked up for a GPU."
    ),
    "Peak (memory)": ("The largest amount of memory in use at one instant."),
    "Phase": ("The part of a step in which something runs: data, forward, backward, recompute, update, or other."),
    "Recording": ("The file of a run (.tbd): facts only, from which every report is computed."),
    "Role": ("What a block of memory is for: weight, gradient, feature map and so on. memory.md lists them."),
    "Roofline": (
        "A diagram of FLOP/s over FLOP per byte. A kernel is limited by arithmetic above the ridge and by "
        "memory below it. The ridge is where the two peaks meet."
    ),
    "Rounding": ("What an allocator adds to the sizes it is asked for."),
    "Sampled": (
        "A level: hardware counters sampled many times a step and divided among the kernels. Also the window "
        "in which they are."
    ),
    "Settled": ("The time per step has become steady. A loop that never settles is reported as such."),
    "Step marker": (
        "What separates two training steps: the call of prof.step(), or the end of an optimizer's step in an "
        "unchanged script."
    ),
    "Synchronization": ("A call in which the host waits for the device."),
    "Throughput": ("Units of work per second in the clean windows."),
    "Unknown": ("Memory that no rule claims. The aim is 0."),
    "Utilization": ("FLOPs over the FLOPs that the device could have done in the same active time."),
    "Verdict": (
        "What takes the largest share of a step, and what to try first; or between which shares the watched "
        "steps cannot tell."
    ),
    "Violation": ("Something in a recording that cannot be, such as a sum that does not add up. It is printed in red."),
    "Warm-up": (
        "The steps before the first window, until the time per step is steady. The first step or block of a "
        "memory or kernels window is also discarded as warm-up."
    ),
    "Window": ("A stretch of steps recorded in one way: warm-up, clean, memory, kernels, sampled, counted."),
    "Workspace": (
        "Scratch memory of an operator or a library, freed when the operator ends or kept by the library for "
        "the next one."
    ),
}
