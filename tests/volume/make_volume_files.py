# SPDX-License-Identifier: Apache-2.0
"""Makes the volumes that test_volume_files reads, by nibabel: run in this directory.

Voxel (column x, row y, slice z) is 100 z + 10 y + x everywhere; sizes are 4 x 3 x 2.
"""

import nibabel
import numpy as np

x, y, z = np.meshgrid(np.arange(4), np.arange(3), np.arange(2), indexing="ij")
values = 100 * z + 10 * y + x
turn = np.array([[-1.8, 0.3, 0.2, 30.5], [0.25, 1.9, -0.4, -12], [0.1, 0.35, 4.9, 7], [0, 0, 0, 1]])

# Half of the values, which a slope of 2 and an offset of 1 scale; sform oblique.
image = nibabel.Nifti1Image(((values - 1) / 2).astype(np.float32), turn)
image.header.set_slope_inter(2, 1)
image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"kept with what is made"))
nibabel.save(image, "oblique.nii.gz")

# Bytes of the other order, qform alone.
header = nibabel.Nifti1Header(endianness=">")
header.set_data_dtype(np.int16)
image = nibabel.Nifti1Image(values.astype(">i2"), None, header)
image.header.set_qform(np.diag([2, 2.5, -3, 1]), code=1)
image.header.set_sform(None, code=0)
nibabel.save(image, "swapped.nii")

four = np.stack([values, values], axis=-1)
nibabel.save(nibabel.Nifti1Image(four.astype(np.uint8), np.eye(4)), "four.nii")

with open("plain.mhd", "w") as f:
    f.write(
        "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
        "CompressedData = False\nTransformMatrix = 1 0 0 0 1 0 0 0 1\nOffset = 3 4 5\n"
        "ElementSpacing = 1 2 3\nDimSize = 4 3 2\nElementType = MET_SHORT\n"
        "ElementDataFile = plain.raw\n"
    )
values.transpose(2, 1, 0).astype("<i2").tofile("plain.raw")
