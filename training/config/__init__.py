"""Experiments as TOML files: a complete default, short files of differences, overrides.

>>> from training.config import load_config
>>> load_config("digits", ["training.epochs=3"]).training.epochs
3

Nothing here needs torch; `training.models.building` builds the model of an experiment.
"""

from training.config.dump import config_hash as config_hash
from training.config.dump import differences as differences
from training.config.dump import differing_keys as differing_keys
from training.config.dump import dump_toml as dump_toml
from training.config.dump import file_names as file_names
from training.config.dump import flat_table as flat_table
from training.config.dump import hash_without_seed as hash_without_seed
from training.config.dump import plain_table as plain_table
from training.config.errors import ConfigError as ConfigError
from training.config.errors import Problem as Problem
from training.config.legacy_hashes import hashes_of_file as hashes_of_file
from training.config.legacy_hashes import legacy_hash as legacy_hash
from training.config.legacy_hashes import read_hash_mapping as read_hash_mapping
from training.config.load import all_keys as all_keys
from training.config.load import available_configs as available_configs
from training.config.load import change_config as change_config
from training.config.load import load_config as load_config
from training.config.load import shipped_folder as shipped_folder
from training.config.model_sizes import ModelShape as ModelShape
from training.config.model_sizes import image_size as image_size
from training.config.model_sizes import model_shape as model_shape
from training.config.rules import check_files as check_files
from training.config.schema import Experiment as Experiment
