"""LineFit: y as a line over x, from points that come one by one."""

from __future__ import annotations


class LineFit:
    """Least squares, the older a point the lighter: at each new one, the others keep `forgetting` of their weight."""

    def __init__(self, forgetting: float) -> None:
        self.mean_x = 0.0
        self.mean_y = 0.0
        self._forgetting = forgetting
        self._weight = 0.0
        self._variance = 0.0  # of x, times the weight
        self._covariance = 0.0  # times the weight

    def add(self, x: float, y: float) -> None:
        """Learn a point."""
        self._weight = self._weight * self._forgetting + 1
        delta_x, delta_y = x - self.mean_x, y - self.mean_y
        self.mean_x += delta_x / self._weight
        self.mean_y += delta_y / self._weight
        self._variance = self._variance * self._forgetting + delta_x * (x - self.mean_x)
        self._covariance = self._covariance * self._forgetting + delta_x * (y - self.mean_y)

    @property
    def slope(self) -> float:
        """What y grows by with x; 0 while all x were alike."""
        return self._covariance / self._variance if self._variance > 0 else 0.0

    def at(self, x: float) -> float:
        """The line's y."""
        return self.mean_y + self.slope * (x - self.mean_x)
