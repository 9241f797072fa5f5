"""Puts a study's published figures beside the measured ones, in whatever campaign repeats that study."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.analyze.findings import Findings, PublishedFinding
from pgstrata.record.reader import CampaignData
from pgstrata.report.tables.agreement import add_published
from pgstrata.studies import Study, list_studies


def with_published(findings: Findings, data: CampaignData) -> Findings:
    """The findings with the figures of the study that the campaign repeats; as they are for any other."""
    name = data.campaign.study or data.campaign.name.split()[0]
    for study in list_studies():
        if study.name == name:
            return add_published(findings, f"{study.source}: {study.statistic}", _figures(study, data))
    return findings


def _figures(study: Study, data: CampaignData) -> Iterator[PublishedFinding]:
    for cell in data.campaign.workload.cells:
        for stack in data.campaign.stacks:
            found = study.published(stack.name, cell)
            if found is not None:
                yield PublishedFinding(study=study.title, stack=stack.name, cell=cell.id, **dict(found))
