// What the files of nvidia-smi share.
#ifndef RACKLESS_SMI_H
#define RACKLESS_SMI_H

#include "gpu.h"

int smi_topology(void);
// smi_query prints fields, a list with commas; format is "csv" and its options. only is a GPU, or -1 for all.
int smi_query(const char *fields, const char *format, int only);
int smi_details(int only); // -q

#define SMI_LOST 15 // the exit status of nvidia-smi if a GPU is lost

// smi_lost prints that a GPU is lost, and returns true, if it is.
bool smi_lost(const struct gpu *all, int i);

// smi_bus_id writes an address as nvidia-smi does: 00000000:04:00.0.
void smi_bus_id(const struct gpu *g, char text[24]);

#endif
