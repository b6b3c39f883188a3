"""The study of one paper: comparisons of encodings, published rows, and analyses.

``compare`` trains, ``publish`` keeps rows, ``results`` makes tables of them, ``analyse_NAME`` is
``wefpe analyse NAME``. The library (config, data, encodings, models, engine) imports none of it.
"""
