import { readFileSync } from 'node:fs';
import { alertRules } from './alert-rules.ts';
import { cliPage } from './cli-page.ts';
import { logCatalogue } from './log-catalogue.ts';
import { manPage } from './man-page.ts';
import { managementReference } from './management-reference.ts';
import { replaceSection } from './markdown.ts';
import { overviewPicture } from './overview-picture.ts';
import { envExample, settingsPage } from './settings-page.ts';

/** The content of every generated file, by its path in the project. */
export function generatedPages(): Record<string, string> {
  return {
    'docs/settings.md': settingsPage(),
    'docs/cli.md': cliPage(),
    'packaging/device-agent.1': manPage(),
    '.env.example': envExample(),
    'packaging/prometheus/alerts.yml': alertRules(readFileSync('packaging/prometheus/alerts.yml', 'utf8')),
    'docs/operations.md': replaceSection(readFileSync('docs/operations.md', 'utf8'), 'log messages', logCatalogue()),
    'docs/images/overview.svg': overviewPicture(),
    'docs/management-api.md': replaceSection(
      readFileSync('docs/management-api.md', 'utf8'),
      'reference',
      managementReference(),
    ),
  };
}
