"""The published comparisons: their campaigns and figures. Imports `errors` and `spec`.

`figures/NAME.yaml` restates what was published. `campaigns/` holds the campaign files; in a checkout it is that folder
at the top. Stacks of the campaigns are called like the arms, so that a report can put the published ratio of an arm
to its baseline beside the measured one.
"""

from pgstrata.studies.catalog import campaign_file, list_campaigns, list_studies, load_study
from pgstrata.studies.published import Arm, Published, Study

__all__ = ["Arm", "Published", "Study", "campaign_file", "list_campaigns", "list_studies", "load_study"]
