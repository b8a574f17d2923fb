"""Heart disease in four hospitals: a federation as it comes, each with its own patients and gaps.

Janosi, Steinbrunn, Pfisterer and Detrano, UCI Machine Learning Repository, CC BY 4.0: a CSV file
with a column `site`, thirteen features and `disease`, 0 or 1.
"""

import csv

import numpy as np

import undrift as ud

FEATURES = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"]
FEATURES += ["thalach", "exang", "oldpeak", "slope", "ca", "thal"]
OFTEN_MISSING = ("chol", "slope", "ca", "thal")  # at some hospitals never measured


def hospitals(path: str = "heart.csv", l2: float = 0.02):
    """Logistic regression with an intercept, on 920 patients of four hospitals."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    values = np.array([[float(row[name] or "nan") for name in FEATURES] for row in rows])
    cholesterol = values[:, FEATURES.index("chol")]
    cholesterol[cholesterol == 0] = np.nan  # that is how one of them writes "not measured"
    gaps = np.isnan(values)
    centre, spread = np.nanmean(values, 0), np.nanstd(values, 0)
    filled = np.where(gaps, 0.0, (values - centre) / spread)
    marks = gaps[:, [FEATURES.index(name) for name in OFTEN_MISSING]].astype(float)
    inputs = np.hstack([filled, marks, np.ones((len(rows), 1))])
    labels = np.where([row["disease"] == "1" for row in rows], 1.0, -1.0)
    parts = ud.data.by_group([row["site"] for row in rows])
    return ud.problems.Logistic(inputs, labels, parts, l2=l2)
