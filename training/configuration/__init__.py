"""Experiments as TOML files: a complete default, short files of differences, overrides.

>>> from training.configuration import load_config
>>> load_config("digits", ["training.epochs=3"]).training.epochs
3

"""

from training.configuration.dump import config_hash as config_hash
from training.configuration.dump import differences as differences
from training.configuration.dump import differing_keys as differing_keys
from training.configuration.dump import dump_toml as dump_toml
from training.configuration.dump import file_names as file_names
from training.configuration.dump import hash_without_seed as hash_without_seed
from training.configuration.dump import plain_table as plain_table
from training.configuration.dump import table_hash as table_hash
from training.configuration.errors import ConfigError as ConfigError
from training.configuration.errors import Problem as Problem
from training.configuration.files import available_configs as available_configs
from training.configuration.load import all_keys as all_keys
from training.configuration.load import change_config as change_config
from training.configuration.load import load_config as load_config
from training.configuration.model import build_model as build_model
from training.configuration.model import check_files as check_files
from training.configuration.schema import Experiment as Experiment
from training.configuration.shapes import ModelShape as ModelShape
from training.configuration.shapes import image_size as image_size
from training.configuration.shapes import model_shape as model_shape
