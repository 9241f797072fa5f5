"""Published comparisons: their campaigns and figures. Imports `errors` and `spec`.

`figures/NAME.yaml` restates the published figures. `campaigns/` holds the campaign files; in a checkout it is the
top-level folder of that name. Stacks of the campaigns have the names of the arms, so that a report can show the
published ratio of an arm to its baseline next to the measured one.
"""

from pgstrata.studies.catalog import Arm, Published, Study, campaign_file, list_campaigns, list_studies, load_study

__all__ = ["Arm", "Published", "Study", "campaign_file", "list_campaigns", "list_studies", "load_study"]
