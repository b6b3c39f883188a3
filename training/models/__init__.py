"""Vision transformers with a position encoding of choice, and their weights.

Importing this imports torch; safetensors and huggingface_hub are imported only by what needs
them, and timm and transformers not at all.
"""

from training.models.attach import attach as attach
from training.models.attach import detach as detach
from training.models.checkpoint_files import CheckpointError as CheckpointError
from training.models.checkpoint_files import CheckpointNotFoundError as CheckpointNotFoundError
from training.models.checkpoint_files import hub_checkpoint as hub_checkpoint
from training.models.dhvt import HybridVisionTransformer as HybridVisionTransformer
from training.models.dhvt import build_dhvt as build_dhvt
from training.models.folding import fold_positions as fold_positions
from training.models.pretrained import LoadReport as LoadReport
from training.models.pretrained import load_checkpoint as load_checkpoint
from training.models.pretrained import timm_state_dict as timm_state_dict
from training.models.saved_attachment import load_attached as load_attached
from training.models.vit import VIT_SIZES as VIT_SIZES
from training.models.vit import VisionTransformer as VisionTransformer
from training.models.vit import build_vit as build_vit
