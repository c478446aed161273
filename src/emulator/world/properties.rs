//! Custom properties: definitions by organization, values by repository.

use std::collections::BTreeMap;

use super::World;
use super::organizations::people::Owner;
use super::organizations::property::{Definition, PropertyValue};

#[derive(Debug, Default)]
pub struct Properties {
    /// By organisation, then by name.
    pub(super) definitions: BTreeMap<u64, BTreeMap<String, Definition>>,
    /// By repository, then by name; explicit values only.
    pub(super) values: BTreeMap<u64, BTreeMap<String, PropertyValue>>,
}

impl Properties {
    pub fn definitions(&self, organization: u64) -> impl Iterator<Item = &Definition> {
        self.definitions.get(&organization).into_iter().flat_map(BTreeMap::values)
    }

    pub fn definition(&self, organization: u64, name: &str) -> Option<&Definition> {
        self.definitions.get(&organization)?.get(name)
    }

    /// Returns a repository's own value, else the default of a required property.
    pub fn value_of<'a>(
        &'a self,
        repository: u64,
        definition: &'a Definition,
    ) -> Option<&'a PropertyValue> {
        let own = self.values.get(&repository).and_then(|values| values.get(&definition.name));
        own.or(definition.default_value.as_ref().filter(|_| definition.required))
    }

    pub fn set(&mut self, repository: u64, name: &str, value: Option<PropertyValue>) {
        let values = self.values.entry(repository).or_default();
        match value {
            Some(value) => drop(values.insert(name.to_owned(), value)),
            None => drop(values.remove(name)),
        }
    }

    #[cfg(test)]
    pub fn has_values(&self, repository: u64) -> bool {
        self.values.contains_key(&repository)
    }
}

impl World {
    /// Drops values that became invalid, which the upstream does not document.
    pub fn define_property(&mut self, organization: u64, definition: Definition) {
        for values in self.property_values_of(organization) {
            values.retain(|name, value| *name != definition.name || definition.keeps(value));
        }
        let definitions = self.properties.definitions.entry(organization).or_default();
        definitions.insert(definition.name.clone(), definition);
    }

    /// Deletes a property with all its values; false when there was none.
    pub fn undefine_property(&mut self, organization: u64, name: &str) -> bool {
        for values in self.property_values_of(organization) {
            values.remove(name);
        }
        let definitions = self.properties.definitions.get_mut(&organization);
        definitions.is_some_and(|definitions| definitions.remove(name).is_some())
    }

    /// Lists the explicit values of each of the organisation's repositories.
    fn property_values_of(
        &mut self,
        organization: u64,
    ) -> impl Iterator<Item = &mut BTreeMap<String, PropertyValue>> {
        let owner = Owner::Organization(organization);
        let repositories = &self.repositories;
        let is_owned =
            move |id: &u64| repositories.get(id).is_some_and(|found| found.owner == owner);
        let values = self.properties.values.iter_mut();
        values.filter(move |(id, _)| is_owned(id)).map(|(_, values)| values)
    }
}
