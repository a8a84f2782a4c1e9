/* Stands in for the binding objects of flash-attn: an importable flash_attn_2_cuda that needs the HIP library. */
#include <Python.h>

extern int hip_stand_in;

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", NULL, -1, NULL};

PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void)
{
    PyObject *module = PyModule_Create(&definition);
    return module && PyModule_AddIntConstant(module, "hip", hip_stand_in) == 0 ? module : NULL;
}
