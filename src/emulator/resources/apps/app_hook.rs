//! The webhook of an app: its configuration and deliveries, for the app's own JWT alone
//! (SPECIFICATION, "Webhooks").
//!
//! It gets the events of every organisation where the app is installed. The upstream does not
//! document its selection of events; here it has all.

use crate::emulator::http::ApiError;
use crate::emulator::resources::webhooks::{deliveries, hooks};
use crate::emulator::routing::{Call, Need, Outcome, Route};
use crate::emulator::world::Hook;

pub const ROUTES: &[Route] = &[
    Route::get("/app/hook/config", Need::App, get_config),
    Route::patch("/app/hook/config", Need::App, patch_config),
    Route::get("/app/hook/deliveries", Need::App, list),
    Route::get("/app/hook/deliveries/{delivery_id}", Need::App, get),
    Route::post("/app/hook/deliveries/{delivery_id}/attempts", Need::App, attempt),
];

fn mine<'a>(call: &'a Call<'_>) -> Result<&'a Hook, ApiError> {
    call.caller.app().and_then(|app| call.world.app_hooks.get(&app)).ok_or(ApiError::NotFound)
}

fn get_config(call: &mut Call<'_>) -> Outcome {
    Ok(hooks::show_config(mine(call)?))
}

fn patch_config(call: &mut Call<'_>) -> Outcome {
    let hook_key = mine(call)?.hook_key();
    hooks::change_config(call, hook_key)
}

/// Unlike that of an organisation's webhook, this list has no status filter.
fn list(call: &mut Call<'_>) -> Outcome {
    deliveries::page(call, mine(call)?, None)
}

fn get(call: &mut Call<'_>) -> Outcome {
    deliveries::detail(call, mine(call)?)
}

fn attempt(call: &mut Call<'_>) -> Outcome {
    let redelivery = deliveries::redelivery(call, mine(call)?)?;
    deliveries::redeliver(call, redelivery)
}
