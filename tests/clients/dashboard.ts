// A dashboard of Prometheus panels, as Grafana's schema describes it. Grafana's types leave options and queries open;
// here each kind of panel has its own, so an unknown kind of panel or a misspelled option is an error.
import type * as grafana from '@grafana/schema';
import type * as schema from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// Grafana has no package with the types of this data source alone.
interface PrometheusQuery extends grafana.DataQuery {
  datasource: grafana.DataSourceRef;
  expr: string;
  legendFormat: string;
  instant?: boolean;
}

interface PrometheusAnnotation extends schema.AnnotationQuery {
  expr: string;
  titleFormat: string;
}

type Panel<Kind, Options, Style> = Omit<schema.Panel, 'type' | 'options' | 'targets' | 'fieldConfig'> & {
  type: Kind;
  options: Options;
  targets: PrometheusQuery[];
  fieldConfig: Omit<schema.FieldConfigSource, 'defaults'> & {
    defaults: Omit<schema.FieldConfig, 'custom'> & { custom?: Style };
  };
};

type AnyPanel =
  | schema.RowPanel
  | Panel<'stat', stat.Options, Record<string, never>>
  | Panel<'timeseries', timeseries.Options, timeseries.FieldConfig>;

// In JSON, the member of an enum is its value.
type Json<T> = unknown extends T
  ? T
  : T extends string
    ? `${T}`
    : T extends object
      ? { [Key in keyof T]: Json<T[Key]> }
      : T;

export type Dashboard = Json<
  Omit<schema.Dashboard, 'panels' | 'annotations'> & {
    panels: AnyPanel[];
    annotations: { list: PrometheusAnnotation[] };
  }
>;
