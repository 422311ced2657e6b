"""What all schemas of files share; without torch, which `thinrnn list` does without."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MOST = 2**31 - 1  # of anything that is counted
Count = Annotated[int, Field(ge=0, le=MOST)]


class Schema(BaseModel):
    """A file, or a part of one: types are not converted, and numbers are finite."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)
